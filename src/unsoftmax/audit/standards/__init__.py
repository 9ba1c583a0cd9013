"""An audit in the taxonomies and file formats that security teams use."""
