//! A server of the test's own, and the least of an HTTP client.

use everwarm_sim_server::{Config, Handle, spawn};
use everwarm_workload::Runtime;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server on any port and a socket in a folder of its own.
pub fn serve(runtime: &str) -> (Handle, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new("sim:m2", Runtime::built_in(runtime).unwrap());
    config.socket = Some(folder.path().join("gpu"));
    (spawn(config).unwrap(), folder)
}

/// A response as it comes.
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    body: BufReader<TcpStream>,
}

/// Sends a request and reads the response's head.
pub fn request(server: &Handle, method: &str, path: &str, body: &str) -> Response {
    let address = server.url().replace("http://", "");
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut body = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        body.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let status = line().split(' ').nth(1).expect("a status line").parse().unwrap();
    let mut headers = Vec::new();
    loop {
        let line = line();
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.push((name.to_owned(), value.to_owned()));
    }
    Response { status, headers, body }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The data of the stream's next event, and when it came.
    pub fn event(&mut self) -> Option<(Instant, String)> {
        loop {
            let mut line = String::new();
            if self.body.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // Chunk sizes and empty lines pass; a chunk of this server holds whole lines.
            if let Some(data) = line.strip_prefix("data: ") {
                return Some((Instant::now(), data.trim_end().to_owned()));
            }
        }
    }

    /// The body as JSON.
    pub fn json(mut self) -> Value {
        let mut body = String::new();
        std::io::Read::read_to_string(&mut self.body, &mut body).unwrap();
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error} in {body}"))
    }
}

/// A chat request of `words` words.
pub fn chat(words: usize, rest: &str) -> String {
    let text = vec!["word"; words].join(" ");
    format!(r#"{{"messages": [{{"role": "user", "content": "{text}"}}]{rest}}}"#)
}
