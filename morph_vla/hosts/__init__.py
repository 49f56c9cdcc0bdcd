"""The same plugin inside other people's trainers and servers, which stay as they are."""
