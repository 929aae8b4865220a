//! A scripted upstream on a raw socket, a raw client, and a proxy between them.
//!
//! Both ends speak bytes, so that a test sees exactly what passes. Waiting is by blocking reads
//! with a limit; nothing sleeps for luck.
#![allow(dead_code, reason = "each test binary uses its part")]

use everwarm_proxy::{Config, Handle, Limits, spawn};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything takes, shorter than anybody waits.
pub const LONG: Duration = Duration::from_secs(10);

/// What may be on its way where one side does not take it: both sockets' buffers, which Linux lets
/// grow to some 10 MB a connection, and a little in the proxy. Unit: B.
pub const IN_FLIGHT_MAX: usize = 32 << 20;

/// One end of a connection.
pub struct Wire {
    pub stream: TcpStream,
    /// Read from the socket and not yet asked for.
    spare: Vec<u8>,
}

/// How a connection ended, seen from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    Fin,
    Reset,
}

impl Wire {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_nodelay(true).unwrap();
        Wire { stream, spare: Vec::new() }
    }

    pub fn to(address: SocketAddr) -> Self {
        Wire::new(TcpStream::connect(address).unwrap())
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Up to and with the blank line, as text.
    pub fn head(&mut self) -> String {
        String::from_utf8(self.until(b"\r\n\r\n")).unwrap()
    }

    pub fn until(&mut self, mark: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.spare.windows(mark.len()).position(|w| w == mark) {
                return self.spare.drain(..at + mark.len()).collect();
            }
            let got = self.more();
            assert!(got.is_ok(), "ended before {:?}: {}", show(mark), show(&self.spare));
        }
    }

    pub fn exactly(&mut self, bytes: usize) -> Vec<u8> {
        while self.spare.len() < bytes {
            let got = self.more();
            assert!(got.is_ok(), "ended after {} of {bytes}: {got:?}", self.spare.len());
        }
        self.spare.drain(..bytes).collect()
    }

    /// Everything until the other side closes, and how it does.
    pub fn rest(&mut self) -> (Vec<u8>, Closed) {
        loop {
            if let Err(closed) = self.more() {
                return (std::mem::take(&mut self.spare), closed);
            }
        }
    }

    /// Asserts that nothing comes for `span`.
    pub fn silent(&mut self, span: Duration) {
        assert!(self.spare.is_empty(), "{}", show(&self.spare));
        self.stream.set_read_timeout(Some(span)).unwrap();
        let mut one = [0u8; 1];
        let got = self.stream.read(&mut one);
        let quiet =
            |e: &std::io::Error| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(got.as_ref().is_err_and(quiet), "expected silence, got {got:?} {one:?}");
        self.stream.set_read_timeout(Some(LONG)).unwrap();
    }

    /// The body of a chunked message: the data, and whether its end was proper.
    pub fn chunked(&mut self) -> Vec<u8> {
        let mut data = Vec::new();
        loop {
            let line = self.until(b"\r\n");
            let size = std::str::from_utf8(&line).unwrap().trim().split(';').next().unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if size == 0 {
                assert_eq!(self.until(b"\r\n"), b"\r\n");
                return data;
            }
            data.extend(self.exactly(size));
            assert_eq!(self.exactly(2), b"\r\n");
        }
    }

    /// Sends until the other side takes nothing for a while, and says how many bytes it took.
    pub fn push_until_stuck(&mut self) -> usize {
        self.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let piece = vec![b'x'; 256 * 1024];
        let mut taken = 0;
        while taken < 2 * IN_FLIGHT_MAX {
            match self.stream.write(&piece) {
                Ok(bytes) => taken += bytes,
                Err(_) => break,
            }
        }
        taken
    }

    /// Closes with a reset.
    pub fn reset(self) {
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    fn more(&mut self) -> Result<(), Closed> {
        let mut buffer = [0u8; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(Closed::Fin),
            Ok(n) => {
                self.spare.extend_from_slice(&buffer[..n]);
                Ok(())
            }
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                Err(Closed::Reset)
            }
            Err(e) => panic!("nothing came within {LONG:?} ({e}); so far {}", show(&self.spare)),
        }
    }
}

pub fn show(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(bytes))
}

/// An upstream whose connections are handed to the test one by one.
pub struct Upstream {
    pub address: SocketAddr,
    connections: Receiver<Wire>,
    listener: TcpListener,
    _accept: JoinHandle<()>,
}

impl Upstream {
    pub fn start() -> Self {
        Upstream::on("127.0.0.1:0".parse().unwrap())
    }

    pub fn on(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let (tell, connections): (Sender<Wire>, _) = channel();
        let accepting = listener.try_clone().unwrap();
        let accept = std::thread::spawn(move || {
            for stream in accepting.incoming() {
                let Ok(stream) = stream else { return };
                if tell.send(Wire::new(stream)).is_err() {
                    return;
                }
            }
        });
        let address = listener.local_addr().unwrap();
        Upstream { address, connections, listener, _accept: accept }
    }

    /// The next connection.
    pub fn accept(&self) -> Wire {
        self.connections.recv_timeout(LONG).expect("the proxy connects")
    }

    /// Asserts that there is no further connection.
    pub fn no_more(&self) {
        assert!(self.connections.try_recv().is_err(), "a connection nobody wanted");
    }
}

/// A proxy on a runtime of its own.
pub struct Proxy {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    pub handle: Option<Handle>,
    pub runtime: Arc<tokio::runtime::Runtime>,
}

impl Proxy {
    pub fn before(upstream: SocketAddr) -> Self {
        Proxy::with(upstream, |_| {})
    }

    pub fn with(upstream: SocketAddr, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config(upstream);
        change(&mut config);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let handle = runtime.block_on(spawn(config)).unwrap();
        let admin = handle.admin_url().unwrap();
        let admin = admin.strip_prefix("http://").unwrap().parse().unwrap();
        Proxy { address: handle.address(), admin, handle: Some(handle), runtime: Arc::new(runtime) }
    }

    pub fn client(&self) -> Wire {
        Wire::to(self.address)
    }

    /// The body of an answer of the admin port, and its status line.
    pub fn ask(&self, request: &str, body: &str) -> (String, String) {
        let mut wire = Wire::to(self.admin);
        wire.send(format!(
            "{request} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        let head = wire.head();
        let (body, _) = wire.rest();
        (head.lines().next().unwrap().to_owned(), String::from_utf8(body).unwrap())
    }

    /// A metric's value, once it is `expected`; a panic with the metrics if it never is.
    pub fn metric(&self, line: &str) {
        let began = Instant::now();
        loop {
            let (_, text) = self.ask("GET /metrics", "");
            if text.lines().any(|l| l == line) {
                return;
            }
            assert!(began.elapsed() < LONG, "no `{line}` in\n{text}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The handle's warmer joins its thread: not on a runtime thread.
        drop(self.handle.take());
    }
}

pub fn config(upstream: SocketAddr) -> Config {
    Config {
        upstream: format!("http://{upstream}").parse().unwrap(),
        listen: "127.0.0.1:0".parse().unwrap(),
        admin: Some("127.0.0.1:0".parse().unwrap()),
        warmer: everwarm_hold::Config {
            device: None,
            policy: "study".to_owned(),
            governor: everwarm_governor::Config::default(),
            shape: everwarm_hold::Shape::default(),
            surroundings: everwarm_hold::Surroundings::Ignored,
        },
        keep_host: false,
        x_forwarded: false,
        keep_alive: None,
        take_in: None,
        limits: Limits::default(),
    }
}

/// A POST of `body` to `path`, with its length.
pub fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

pub const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
