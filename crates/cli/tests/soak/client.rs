//! A client: sends a request, reads as its script says, and judges what came.
//!
//! The judge: an answer's bytes are the upstream's, from the first on; all of them where the upstream
//! ended properly and nobody killed it; and where it was cut, no proper end.

use super::script::{Fault, Framing, Plan, Reading};
use super::wire::{Head, Wire};
use std::io::{Error, ErrorKind, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of the answer, and its end.
    Whole,
    /// A part of it, and no proper end.
    Cut,
    /// The proxy's own 502 or 504: the upstream gave no head.
    NoAnswer,
    /// The client left on purpose.
    Left,
}

/// What was read of an answer.
struct Got {
    body: Vec<u8>,
    outcome: Outcome,
    /// The connection can be used again.
    open: bool,
}

/// One client and its connection, if it has one.
pub struct Client {
    proxy: SocketAddr,
    wire: Option<Wire>,
    /// What this connection was used for before.
    before: Vec<Outcome>,
}

impl Client {
    pub fn of(proxy: SocketAddr) -> Self {
        Client { proxy, wire: None, before: Vec::new() }
    }

    /// Carries out a plan. `killed` tells, after the fact, whether the upstream may have been down.
    pub fn run(&mut self, plan: &Plan, killed: impl Fn() -> bool) -> Outcome {
        let mut wire = self.wire.take().unwrap_or_else(|| self.connect());
        let told = || told(plan, &self.before);
        let got = exchange(&mut wire, plan).unwrap_or_else(|e| panic!("{}: {e}", told()));
        assert!(plan.body.starts_with(&got.body), "{}: other bytes came", told());
        let (outcome, read) = (got.outcome, got.body.len());
        let whole = outcome != Outcome::Whole || read == plan.body.len();
        // A process that is killed closes as one that ends does: where closing is the answer's end,
        // nobody can tell.
        let looks_whole = plan.framing == Framing::Close && outcome == Outcome::Whole;
        let broken = looks_whole || matches!(outcome, Outcome::NoAnswer | Outcome::Cut);
        let fine = whole && expected(plan).contains(&outcome) || broken && killed();
        assert!(fine, "{}: {outcome:?} after {read} B", told());
        self.before.push(got.outcome);
        if !got.open {
            self.before.clear();
        }
        self.wire = got.open.then_some(wire);
        got.outcome
    }

    fn connect(&self) -> Wire {
        TcpStream::connect(self.proxy).and_then(Wire::new).expect("the proxy takes connections")
    }
}

fn told(plan: &Plan, before: &[Outcome]) -> String {
    let Plan { id, http_10, framing, fault, closes, reading, body, .. } = plan;
    format!(
        "request {id} (http_10 {http_10}, {framing:?}, {} B, {fault:?}, closes {closes}, {reading:?}) \
         on a connection with {before:?} before",
        body.len()
    )
}

/// What may come of it while the upstream is up.
fn expected(plan: &Plan) -> &'static [Outcome] {
    match (plan.fault, plan.reading) {
        // Too late to leave: nothing came, or the cut came first.
        (Some(Fault::NoHead), _) => &[Outcome::NoAnswer],
        (Some(_), Reading::Leaves { .. }) => &[Outcome::Left, Outcome::Cut],
        // A reset right behind the head may take the head with it.
        (Some(Fault::Cut { reset: true, .. }), _) => &[Outcome::Cut, Outcome::NoAnswer],
        (Some(_), _) => &[Outcome::Cut],
        (None, Reading::Leaves { .. }) => &[Outcome::Left],
        (None, _) => &[Outcome::Whole],
    }
}

fn exchange(wire: &mut Wire, plan: &Plan) -> Result<Got> {
    let version = if plan.http_10 { "1.0" } else { "1.1" };
    let (id, length) = (plan.id, plan.request.len());
    write!(
        wire.stream,
        "POST /v1/{id} HTTP/{version}\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
    )?;
    wire.stream.write_all(&plan.request)?;
    let head = match wire.head() {
        Ok(head) => head,
        // A cut may come before the head has been passed on.
        Err(error) if is_end(&error) => {
            return Ok(Got { body: Vec::new(), outcome: Outcome::Cut, open: false });
        }
        Err(error) => return Err(error),
    };
    if [" 502 ", " 504 "].iter().any(|code| head.first.contains(code)) {
        wire.exactly(head.length.unwrap_or(0))?;
        let open = !head.close && !plan.http_10;
        return Ok(Got { body: Vec::new(), outcome: Outcome::NoAnswer, open });
    }
    if !head.first.contains(" 200 ") {
        return Err(Error::other(format!("`{}`", head.first)));
    }
    let mut body = Vec::new();
    let leave = match plan.reading {
        Reading::Leaves { after, .. } => after,
        _ => usize::MAX,
    };
    let slow = plan.reading == Reading::Slowly;
    let read = match (head.chunked, head.length) {
        (true, _) => chunks(wire, &mut body, leave, slow),
        (false, Some(length)) => counted(wire, &mut body, length, leave, slow),
        (false, None) => counted(wire, &mut body, usize::MAX, leave, slow),
    };
    let outcome = match read {
        Ok(outcome) => outcome,
        Err(error) if ends_by_close(&head) && error.kind() == ErrorKind::UnexpectedEof => {
            Outcome::Whole
        }
        Err(error) if is_end(&error) => Outcome::Cut,
        Err(error) => return Err(error),
    };
    if let (Outcome::Left, Reading::Leaves { reset: true, .. }) = (outcome, plan.reading) {
        wire.reset();
    }
    let open = outcome == Outcome::Whole && !head.close && !ends_by_close(&head) && !plan.http_10;
    if open && wire.has_spare() {
        return Err(Error::other("bytes behind the answer's end"));
    }
    Ok(Got { body, outcome, open })
}

fn ends_by_close(head: &Head) -> bool {
    !head.chunked && head.length.is_none()
}

fn is_end(error: &Error) -> bool {
    let kinds = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    kinds.contains(&error.kind())
}

/// Reads `length` bytes, or leaves before.
fn counted(
    wire: &mut Wire,
    body: &mut Vec<u8>,
    length: usize,
    leave: usize,
    slow: bool,
) -> Result<Outcome> {
    let until = length.saturating_add(body.len());
    while body.len() < until {
        if body.len() >= leave {
            return Ok(Outcome::Left);
        }
        // As slow as a reader is, it is done within some 100 ms.
        let most = if slow { (until.min(600_000) / 64).max(100) } else { usize::MAX };
        if slow {
            std::thread::sleep(Duration::from_millis(2));
        }
        let rest = until.min(leave) - body.len();
        body.extend(wire.some(most.min(rest))?);
    }
    Ok(Outcome::Whole)
}

fn chunks(wire: &mut Wire, body: &mut Vec<u8>, leave: usize, slow: bool) -> Result<Outcome> {
    loop {
        let line = wire.until(b"\r\n")?;
        let size = std::str::from_utf8(&line).ok().map(str::trim);
        let size = size.and_then(|text| usize::from_str_radix(text, 16).ok());
        let size = size.ok_or_else(|| Error::other(format!("`{line:?}` is no chunk's size")))?;
        if size == 0 {
            let end = wire.exactly(2)?;
            assert_eq!(end, b"\r\n", "nothing stands between the last chunk and the end");
            return Ok(Outcome::Whole);
        }
        if counted(wire, body, size, leave, slow)? == Outcome::Left {
            return Ok(Outcome::Left);
        }
        wire.exactly(2)?;
    }
}
