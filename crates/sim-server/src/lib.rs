//! A simulated GPU in real time behind an OpenAI-compatible server, shared over a Unix socket.
