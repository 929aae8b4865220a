//! What becomes of each request: drawn from the seed and its number, so that upstream, client and
//! judge know it without a word between them.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::ops::Range;
use std::time::Duration;

/// Longer than anything but a stall, even where others take the machine. It is also the proxy's
/// limit on silence.
pub const SILENCE: Duration = Duration::from_secs(5);

/// How the upstream says where its answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Length,
    Chunked,
    /// By closing, as HTTP/1.0 has it.
    Close,
}

/// What goes wrong at the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It closes or resets after so many bytes of the answer's body.
    Cut { after: usize, reset: bool },
    /// It resets before a head.
    NoHead,
    /// It falls silent after so many bytes, for good.
    Stall { after: usize },
}

/// What the client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    Whole,
    /// In small pieces with pauses.
    Slowly,
    /// It leaves after so many bytes of the body.
    Leaves {
        after: usize,
        reset: bool,
    },
}

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct Plan {
    pub id: u64,
    pub http_10: bool,
    pub request: Vec<u8>,
    pub framing: Framing,
    pub body: Vec<u8>,
    /// The answer is sent in pieces of this size, with a pause now and then.
    pub piece: usize,
    pub pause_every: usize,
    pub fault: Option<Fault>,
    /// The upstream closes after a good answer, without having said so.
    pub closes: bool,
    pub reading: Reading,
}

impl Plan {
    pub fn of(seed: u64, id: u64) -> Plan {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(id);
        let mut draw = Draw(rng);
        let size = match draw.below(100) {
            0..5 => 0,
            5..70 => draw.among(1..2_000),
            70..98 => draw.among(2_000..40_000),
            _ => draw.among(100_000..600_000),
        };
        let framing = match draw.below(10) {
            0..4 => Framing::Length,
            4..9 => Framing::Chunked,
            _ => Framing::Close,
        };
        let fault = match draw.below(1000) {
            0..60 if size > 0 => {
                // What ends by closing has no other cut than a reset.
                let reset = framing == Framing::Close || draw.below(2) == 0;
                Some(Fault::Cut { after: draw.among(0..size), reset })
            }
            60..80 => Some(Fault::NoHead),
            80..82 if size > 0 => Some(Fault::Stall { after: draw.among(0..size) }),
            _ => None,
        };
        let reading = match draw.below(100) {
            0..4 if size > 0 => {
                Reading::Leaves { after: draw.among(0..size), reset: draw.below(2) == 0 }
            }
            4..8 => Reading::Slowly,
            _ => Reading::Whole,
        };
        let asked = match draw.below(20) {
            0 => draw.among(30_000..60_000),
            _ => draw.among(1..1_000),
        };
        Plan {
            id,
            http_10: draw.below(20) == 0,
            request: draw.bytes(asked),
            framing,
            piece: draw.among(1..4_000).max(size / 100),
            pause_every: draw.among(3..30),
            body: draw.bytes(size),
            fault,
            closes: draw.below(20) == 0,
            reading,
        }
    }
}

struct Draw(ChaCha8Rng);

impl Draw {
    fn below(&mut self, limit: u32) -> u32 {
        self.0.next_u32() % limit
    }

    fn among(&mut self, range: Range<usize>) -> usize {
        range.start + self.below((range.end - range.start) as u32) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}
