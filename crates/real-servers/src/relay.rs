//! A TCP relay that records both directions of each connection, and can be made to do wrong.
//!
//! Between proxy and server it records; it passes on the ends of both sides as they came. With a
//! [`Fault`] it stands in for a bad proxy, so that the checks can be shown to find what they are for.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::http::{Head, Piece, Reader, Response, Source};

/// What a relay does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Leaves out this header of the response, given in lower case.
    DropHeader(&'static str),
    /// Adds a header line to the response.
    AddHeader(&'static str),
    /// Turns the first `a` of each piece of the response's body into `b`.
    ChangeBody,
    /// Holds the response back until the server has ended it.
    Buffer,
    /// Loses the last five bytes before the server's end.
    CutEnd,
    /// Closes the server's side only so long after the client's.
    CloseLate(Duration),
}

/// What one connection carried.
#[derive(Clone, Debug, Default)]
struct Connection {
    requests: Vec<Piece>,
    responses: Vec<Piece>,
    client_end: Option<Instant>,
    server_end: Option<Instant>,
    refused: Option<Instant>,
}

type Record = Arc<Mutex<Vec<Connection>>>;

/// A running relay; ends when dropped.
pub struct Relay {
    address: SocketAddr,
    record: Record,
    stop: Arc<AtomicBool>,
}

/// How far a record had come.
#[derive(Clone, Debug)]
pub struct Mark(Vec<(usize, usize)>);

/// What one connection carried since a mark.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Which connection, from 0 in the order of opening.
    pub connection: usize,
    /// What the client's side (the proxy) sent.
    pub sent: Vec<u8>,
    pieces: Vec<Piece>,
    /// Whether the server has ended the connection.
    pub server_ended: bool,
}

impl Recorded {
    /// The beginnings of both directions, for a message.
    fn listed(&self) -> String {
        let received = self.pieces.iter().flat_map(|piece| &piece.bytes).copied();
        let received: Vec<u8> = received.take(200).collect();
        let sent = &self.sent[..self.sent.len().min(200)];
        let (sent, received) = (sent.escape_ascii(), received.escape_ascii());
        format!("\n{}: {sent} | {received}", self.connection)
    }

    /// What the server sent, read as the response to a request with that method.
    ///
    /// # Errors
    /// When it has no whole head.
    pub fn response(&self, method: &str) -> anyhow::Result<Response> {
        Reader::new(self.pieces.clone().into_iter()).response(method)
    }

    /// What the client's side sent, read as a request: its head, and its body without framing.
    ///
    /// # Errors
    /// When it isn't whole.
    pub fn request(&self) -> anyhow::Result<(Head, Vec<u8>)> {
        let piece = Piece { at: Instant::now(), bytes: self.sent.clone() };
        Reader::new(vec![piece].into_iter()).request()
    }
}

impl Relay {
    /// Listens on a free port and passes on to `server`.
    ///
    /// # Panics
    /// When there is no free port.
    pub fn start(server: SocketAddr) -> Self {
        Self::faulty(server, Fault::None)
    }

    /// The same, doing wrong.
    ///
    /// # Panics
    /// When there is no free port.
    pub fn faulty(server: SocketAddr, fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let (record, stop) = (Record::default(), Arc::new(AtomicBool::new(false)));
        let (shared, stopped) = (record.clone(), stop.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                accept(client, server, fault, &shared);
            }
        });
        Self { address, record, stop }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How far the record is now.
    pub fn mark(&self) -> Mark {
        let length = |pieces: &[Piece]| pieces.iter().map(|p| p.bytes.len()).sum();
        Mark(
            lock(&self.record)
                .iter()
                .map(|c| (length(&c.requests), length(&c.responses)))
                .collect(),
        )
    }

    /// The one connection on which the server answered, or may yet answer, since `mark`.
    ///
    /// A server may close a kept connection just as it is used again; llama-server does after a
    /// stream, in spite of its `Keep-Alive`. A request that met such an end has no answer there, and
    /// the proxy asks again on another connection.
    ///
    /// # Errors
    /// When none or several did.
    pub fn since(&self, mark: &Mark) -> anyhow::Result<Recorded> {
        let mut all = self.all_since(mark);
        all.retain(|recorded| !recorded.pieces.is_empty() || !recorded.server_ended);
        let listed: String = all.iter().map(Recorded::listed).collect();
        ensure!(all.len() == 1, "expected one connection to the server, used were:{listed}");
        Ok(all.remove(0))
    }

    /// Every connection that carried something since `mark`.
    pub fn all_since(&self, mark: &Mark) -> Vec<Recorded> {
        let record = lock(&self.record);
        let recorded = record.iter().enumerate().map(|(connection, carried)| {
            let (requests, responses) = mark.0.get(connection).copied().unwrap_or_default();
            let sent = after(&carried.requests, requests);
            let sent = sent.into_iter().flat_map(|piece| piece.bytes).collect();
            let server_ended = carried.server_end.is_some();
            let pieces = after(&carried.responses, responses);
            Recorded { connection, sent, pieces, server_ended }
        });
        recorded.filter(|r| !r.sent.is_empty() || !r.pieces.is_empty()).collect()
    }

    /// When the client's side of a connection ended, by FIN or reset.
    pub fn client_end(&self, connection: usize) -> Option<Instant> {
        lock(&self.record)[connection].client_end
    }

    /// When bytes for the client's side were first refused: then it is closed in both directions.
    pub fn refused(&self, connection: usize) -> Option<Instant> {
        lock(&self.record)[connection].refused
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        lock(&self.record).len()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for a connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn lock(record: &Record) -> MutexGuard<'_, Vec<Connection>> {
    record.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Pieces from the `length`th byte on.
fn after(pieces: &[Piece], mut length: usize) -> Vec<Piece> {
    let mut rest = Vec::new();
    for piece in pieces {
        let skipped = length.min(piece.bytes.len());
        length -= skipped;
        if skipped < piece.bytes.len() {
            rest.push(Piece { at: piece.at, bytes: piece.bytes[skipped..].to_vec() });
        }
    }
    rest
}

fn accept(client: TcpStream, server: SocketAddr, fault: Fault, record: &Record) {
    // A server that isn't there is a connection that ends at once.
    let Ok(server) = TcpStream::connect(server) else { return };
    let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let index = {
        let mut record = lock(record);
        record.push(Connection::default());
        record.len() - 1
    };
    let (Ok(to_server), Ok(to_client)) = (server.try_clone(), client.try_clone()) else { return };
    let shared = record.clone();
    thread::spawn(move || requests(client, to_server, fault, &shared, index));
    let shared = record.clone();
    thread::spawn(move || responses(server, to_client, fault, &shared, index));
}

/// Client to server, until the client ends.
fn requests(
    mut client: TcpStream,
    mut server: TcpStream,
    fault: Fault,
    record: &Record,
    index: usize,
) {
    while let Ok(Some(piece)) = client.next_piece() {
        let bytes = piece.bytes.clone();
        lock(record)[index].requests.push(piece);
        if server.write_all(&bytes).is_err() {
            break;
        }
    }
    lock(record)[index].client_end.get_or_insert_with(Instant::now);
    be_late(fault);
    let _ = server.shutdown(Shutdown::Write);
}

fn be_late(fault: Fault) {
    if let Fault::CloseLate(late) = fault {
        thread::sleep(late);
    }
}

/// Server to client, until the server ends or the client refuses.
fn responses(
    mut server: TcpStream,
    mut client: TcpStream,
    fault: Fault,
    record: &Record,
    index: usize,
) {
    let mut held = Vec::new();
    let ended = || lock(record)[index].server_end = Some(Instant::now());
    loop {
        let piece = match server.next_piece() {
            Ok(Some(piece)) => piece,
            Ok(None) => {
                ended();
                break;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => {
                ended();
                // A reset stays a reset: the client gets no proper end.
                let _ = socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO));
                return;
            }
        };
        held.extend(wrong(&piece.bytes, fault));
        lock(record)[index].responses.push(piece);
        let keep = match fault {
            Fault::Buffer => held.len(),
            Fault::CutEnd => held.len().min(5),
            _ => 0,
        };
        let now: Vec<u8> = held.drain(..held.len() - keep).collect();
        if client.write_all(&now).is_err() {
            lock(record)[index].refused.get_or_insert_with(Instant::now);
            be_late(fault);
            let _ = server.shutdown(Shutdown::Both);
            return;
        }
    }
    if fault == Fault::Buffer {
        let _ = client.write_all(&held);
    }
    let _ = client.shutdown(Shutdown::Write);
}

/// A piece of the response, made wrong.
fn wrong(bytes: &[u8], fault: Fault) -> Vec<u8> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let has_head = bytes.starts_with(b"HTTP/") && end.is_some();
    let (head, body) = bytes.split_at(if has_head { end.expect("found") + 2 } else { 0 });
    let mut head = head.to_vec();
    let mut body = body.to_vec();
    match fault {
        Fault::DropHeader(name) => {
            let text = String::from_utf8_lossy(&head).into_owned();
            let kept = text.split_inclusive("\r\n");
            let kept = kept.filter(|l| !l.to_ascii_lowercase().starts_with(&format!("{name}:")));
            head = kept.collect::<String>().into_bytes();
        }
        Fault::AddHeader(line) if has_head => head.extend(format!("{line}\r\n").bytes()),
        Fault::ChangeBody => {
            if let Some(at) = body.iter().position(|b| *b == b'a') {
                body[at] = b'b';
            }
        }
        _ => {}
    }
    head.extend(body);
    head
}
