//! The Unix socket that shares the GPU: its file, the door, and one reader thread a client.
//!
//! A reader checks the hello, parses lines and passes them to the engine with their stamps; it
//! writes nothing but a refusal to someone who never became a client. The file is for its owner
//! alone (0600), replaces one that nobody listens on any more, and is removed at the end.

use crate::Error;
use crate::clients::ClientId;
use crate::engine::{Command, Inbox};
use everwarm_gpu::Monotonic;
use everwarm_gpu::wire::{self, Reply, Request};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Clients at one time.
const CLIENTS_MAX: usize = 64;

/// How long a client may take to say hello.
const HELLO_MAX: Duration = Duration::from_secs(5);

/// The longest path that fits in a socket's address on every system. Source: `sun_path` has 104
/// bytes on macOS (108 on Linux), one for the final 0.
const PATH_MAX: usize = 103;

/// An open door; closed and its file removed when dropped.
pub(crate) struct Door {
    path: PathBuf,
    inode: u64,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Listens at `path` and lets clients in to the engine.
    pub(crate) fn open(path: &Path, inbox: Inbox) -> Result<Door, Error> {
        let refuse = |why: String| Error::Socket { path: path.to_owned(), why };
        let listener = bind(path).map_err(refuse)?;
        let failed = |error: std::io::Error| refuse(error.to_string());
        let inode = std::fs::symlink_metadata(path).map_err(failed)?.ino();
        let closing = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&closing);
        let builder = std::thread::Builder::new().name("everwarm-door".into());
        let thread = builder.spawn(move || let_in(&listener, &inbox, &closed)).map_err(failed)?;
        Ok(Door { path: path.to_owned(), inode, closing, thread: Some(thread) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        // If somebody has put another socket there, that one stays, and the thread of ours ends
        // with the process.
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|m| m.ino() == self.inode);
        if ours && UnixStream::connect(&self.path).is_ok() {
            // That woke the thread from its accept.
            if let Some(thread) = self.thread.take() {
                let _ = thread.join();
            }
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds `path` without a moment in which others may connect, in place of a dead socket if one is
/// there.
fn bind(path: &Path) -> Result<UnixListener, String> {
    let length = path.as_os_str().len();
    if length > PATH_MAX - 4 {
        let most = PATH_MAX - 4;
        return Err(format!("the path has {length} bytes; a socket's may have {most}"));
    }
    match std::fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err("a file that is no socket is there".into());
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => return Err("a running server listens there already".into()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {} // nobody listens
            Err(error) => return Err(format!("a socket is there that can't be tried: {error}")),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.to_string()),
    }
    // Bound beside, closed to others, then moved in place of what is there.
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let _ = std::fs::remove_file(&beside);
    let made = UnixListener::bind(&beside).and_then(|listener| {
        std::fs::set_permissions(&beside, Permissions::from_mode(0o600))?;
        std::fs::rename(&beside, path)?;
        Ok(listener)
    });
    made.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        match error.kind() {
            ErrorKind::NotFound => "its folder does not exist".to_owned(),
            _ => error.to_string(),
        }
    })
}

fn let_in(listener: &UnixListener, inbox: &Inbox, closing: &AtomicBool) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let inside = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if closing.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of descriptors, say: others must leave before anybody can come in.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let id = ClientId(NEXT.fetch_add(1, Ordering::Relaxed));
        let (inbox, inside) = (inbox.clone(), Arc::clone(&inside));
        let builder = std::thread::Builder::new().name(format!("everwarm-client-{}", id.0));
        let started = builder.spawn(move || {
            if inside.fetch_add(1, Ordering::AcqRel) < CLIENTS_MAX {
                serve(id, stream, &inbox);
            } else {
                refuse(
                    &stream,
                    format!("{CLIENTS_MAX} clients are connected, the most there may be"),
                );
            }
            inside.fetch_sub(1, Ordering::AcqRel);
        });
        if let Err(error) = started {
            tracing::warn!("a client could not be let in: {error}");
        }
    }
}

/// One client, from its hello to its end.
fn serve(id: ClientId, stream: UnixStream, inbox: &Inbox) {
    everwarm_gpu::wake_promptly();
    let (mut reader, writer) = match (stream.try_clone(), stream.try_clone()) {
        (Ok(reader), Ok(writer)) => (BufReader::new(reader), writer),
        _ => return,
    };
    let _ = stream.set_read_timeout(Some(HELLO_MAX));
    if let Err(message) = greeted(&mut reader) {
        tracing::warn!("a socket client was refused: {message}");
        return refuse(&stream, message);
    }
    let _ = stream.set_read_timeout(None);
    if inbox.send(Monotonic::now(), Command::Attach(id, writer)).is_err() {
        return refuse(&stream, "the server is ending".into());
    }
    let end = requests(id, &mut reader, inbox);
    let _ = inbox.send(Monotonic::now(), end);
}

/// Passes requests on until the client goes or goes wrong.
fn requests(id: ClientId, reader: &mut impl BufRead, inbox: &Inbox) -> Command {
    let mut last = Monotonic(0);
    loop {
        let line = match read_line(reader) {
            Ok(Some(line)) => line,
            Ok(None) => return Command::Detach(id),
            Err(message) => return Command::Refuse(id, message),
        };
        let request = match wire::parse::<Request>(&line) {
            Ok(request) => request,
            Err(message) => return Command::Refuse(id, message),
        };
        // Requests are carried out in the order of their stamps, so a client's must not go back;
        // opening a queue takes no time and must not be later than a commit to it.
        last = match request {
            Request::Commit { at_ns, .. } => Monotonic(at_ns).min(Monotonic::now()).max(last),
            Request::Counters { .. } => Monotonic::now(),
            Request::Hello { .. } | Request::OpenQueue { .. } => last,
        };
        if inbox.send(last, Command::Request(id, request)).is_err() {
            return Command::Detach(id);
        }
    }
}

fn greeted(reader: &mut impl BufRead) -> Result<(), String> {
    let line = read_line(reader)?.ok_or("closed without a hello")?;
    match wire::parse::<Request>(&line)? {
        Request::Hello { protocol, version, client } if protocol == wire::PROTOCOL => {
            match version == wire::VERSION {
                true => {
                    tracing::info!("a socket client came: {client}");
                    Ok(())
                }
                false => {
                    Err(format!("version {version} is not spoken here; expected {}", wire::VERSION))
                }
            }
        }
        Request::Hello { protocol, .. } => {
            Err(format!("protocol `{protocol}` is not spoken here; expected {}", wire::PROTOCOL))
        }
        _ => Err("expected a hello first".into()),
    }
}

/// The next whole line, `None` at the end.
fn read_line(reader: &mut impl BufRead) -> Result<Option<Vec<u8>>, String> {
    let mut line = Vec::new();
    match reader.take(wire::LINE_MAX as u64).read_until(b'\n', &mut line) {
        Ok(0) => Ok(None),
        Ok(wire::LINE_MAX) if line.last() != Some(&b'\n') => {
            Err(format!("a line is longer than {} bytes", wire::LINE_MAX))
        }
        Ok(_) => Ok(Some(line)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Err(format!("no hello within {} s", HELLO_MAX.as_secs()))
        }
        Err(_) => Ok(None), // reset by a client that died
    }
}

fn refuse(mut stream: &UnixStream, message: String) {
    let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
    let _ = stream.write_all(&wire::line(&Reply::Refused { message }));
}
