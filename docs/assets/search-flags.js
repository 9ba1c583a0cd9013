// The search takes "-word" as "pages without word", and "--word" as an error. Whoever looks for --longest means
// the word, so dashes in front of words are left out of a query.
{
  const QUERY = 2 // the kind of message that carries one, in Material for MkDocs 9
  const post = Worker.prototype.postMessage
  Worker.prototype.postMessage = function (message, ...rest) {
    const asked = message && message.type === QUERY && typeof message.data === "string"
    const sent = asked ? { ...message, data: message.data.replace(/(^|\s)-+/g, "$1") } : message
    return post.call(this, sent, ...rest)
  }
}
