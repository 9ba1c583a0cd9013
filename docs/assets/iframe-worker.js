// A page that was opened as a file may not start a worker, and the search runs in one. There, and only there,
// a hidden frame takes its place: it runs the same script and passes messages to and from this page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.onmessage = null
      const frame = document.createElement("iframe")
      frame.hidden = true
      const attached = document.body
        ? Promise.resolve()
        : new Promise((done) => addEventListener("DOMContentLoaded", done, { once: true }))
      this.ready = attached.then(() => {
        document.body.appendChild(frame)
        const inner = frame.contentWindow
        addEventListener("message", (event) => {
          if (event.source !== inner) return
          const copy = new MessageEvent("message", { data: event.data })
          this.dispatchEvent(copy)
          if (this.onmessage) this.onmessage(copy)
        })
        const page = inner.document
        page.open()
        page.write(
          `<script>
             function postMessage(data) { parent.postMessage(data, "*") }
             function importScripts(...urls) {
               return urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {
                 const script = document.createElement("script")
                 script.src = url
                 script.onload = done
                 script.onerror = failed
                 document.body.appendChild(script)
               })), Promise.resolve())
             }
           <\/script><body><script src="${url}"><\/script>`
        )
        page.close()
        return new Promise((done) => { frame.onload = () => done(inner) })
      })
    }

    postMessage(data) {
      this.ready.then((inner) => {
        inner.dispatchEvent(new MessageEvent("message", { data, source: window }))
      })
    }

    terminate() {}
  }
}
