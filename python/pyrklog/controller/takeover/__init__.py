"""Another broker becomes the controller while the old one may believe that it is."""
