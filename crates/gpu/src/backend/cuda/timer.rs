//! The device's own timer: how fine it is, and what it shows when the host's clock shows what.
//!
//! `%globaltimer` counts nanoseconds, but some devices move it on only every microsecond or so
//! ([`Timer::resolution`] finds out). To put it beside the host's clock, a kernel of one thread and
//! the host call to each other through host memory ([`Timer::burst`]): the kernel's answer lies
//! between two looks at the host's clock that are one round trip over the bus apart.

use super::driver::{Answer, Handle, Launch, Pinned};
use super::shared::Shared;
use crate::{Monotonic, Reading};
use everwarm_units::Span;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Words of the mailbox: the host's number in the first line, then answers.
const MAILBOX_WORDS: usize = 8 + ANSWERS;

/// Answers that the mailbox has room for.
const ANSWERS: usize = 64;

/// Rounds of a burst. Source: guess; the quickest of 16 round trips is close to the quickest of all.
pub const ROUNDS: usize = 16;

/// Bursts at opening. Source: guess; on a busy machine one of them is quick.
const BURSTS: usize = 8;

/// A round trip over the bus takes 2 to 5 us. Source: guess; from what a read over PCIe takes.
const QUICK: Span = Span::us(20);

/// The host's number that ends a burst.
const STOP: u32 = u32::MAX;

/// The kernel has given up by then, as the host has kept silent (50 ms, `kernels.ptx`).
const SILENCE: Span = Span::ms(40);

/// How long finding out the timer's step may take, once it has begun.
const TICKS_MAX: Span = Span::s(2);

/// What is wrong with a timer that does not move on.
const STILL: &str = "its timer (globaltimer) stands still";

/// A way to ask a device's timer, with a stream of its own.
pub struct Timer {
    shared: Arc<Shared>,
    stream: Handle,
    mailbox: Pinned,
}

impl Timer {
    /// A way to ask the timer of the device, whose context is current.
    pub fn open(shared: &Arc<Shared>) -> Answer<Timer> {
        let stream = shared.driver.stream_create()?;
        let mailbox = shared.driver.host_alloc(MAILBOX_WORDS).inspect_err(|_| {
            let _ = shared.driver.stream_destroy(stream);
        })?;
        Ok(Timer { shared: Arc::clone(shared), stream, mailbox })
    }

    /// Readings of the timer beside the host's clock, at most [`ROUNDS`]. None where the kernel
    /// does not start within `patience`: other work may fill the device.
    pub fn burst(&self, patience: Span) -> Answer<Vec<Reading>> {
        let driver = self.shared.driver;
        if !driver.stream_is_idle(self.stream)? {
            // An earlier burst was given up and waits for its turn still.
            return Ok(Vec::new());
        }
        self.words().iter().for_each(|word| word.store(0, Ordering::Release));
        let (mut mailbox, mut rounds) = (self.mailbox.device, ROUNDS as u32);
        self.launch(self.shared.kernels.ping, &mut [address(&mut mailbox), address(&mut rounds)])?;
        let mut readings = Vec::with_capacity(ROUNDS);
        for round in 1..=ROUNDS as u32 {
            let patience = if round == 1 { patience } else { SILENCE };
            match self.ask(round, patience) {
                Some(reading) => readings.push(reading),
                None => {
                    self.number().store(STOP, Ordering::Release);
                    break;
                }
            }
        }
        Ok(readings)
    }

    /// The readings of several bursts, until one is as quick as a healthy bus allows.
    pub fn good_burst(&self, patience: Span) -> Answer<Vec<Reading>> {
        let mut readings = Vec::new();
        for _ in 0..BURSTS {
            readings.extend(self.burst(patience)?);
            let widths = readings.iter().map(|reading| reading.after.since(reading.before));
            if widths.min().is_some_and(|width| width < QUICK) {
                break;
            }
        }
        Ok(readings)
    }

    /// One round of a burst.
    fn ask(&self, round: u32, patience: Span) -> Option<Reading> {
        let answer = &self.words()[7 + round as usize];
        let before = Monotonic::now();
        self.number().store(round, Ordering::Release);
        loop {
            let ticks = answer.load(Ordering::Acquire);
            let after = Monotonic::now();
            if ticks != 0 {
                return Some(Reading { before, ticks, after });
            }
            if after.since(before) > patience {
                return None;
            }
            // On a machine with few cores, whoever holds up the answer may want this one.
            match after.since(before) < QUICK {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
    }

    /// The smallest step between readings that differ, or why there is none: the timer stands still,
    /// or other work has kept the device from answering for `patience`.
    pub fn resolution(&self, patience: Span) -> Answer<Result<u64, String>> {
        self.words().iter().for_each(|word| word.store(0, Ordering::Release));
        let (mut out, mut count) = (self.mailbox.device, ANSWERS as u32);
        self.launch(self.shared.kernels.ticks, &mut [address(&mut out), address(&mut count)])?;
        let mut begin = Monotonic::now();
        let (mut started, mut patience) = (false, patience);
        while !self.shared.driver.stream_is_idle(self.stream)? {
            if !started && self.words()[0].load(Ordering::Acquire) != 0 {
                (begin, started, patience) = (Monotonic::now(), true, TICKS_MAX);
            }
            if Monotonic::now().since(begin) > patience {
                return Ok(Err(match started {
                    true => STILL.to_owned(),
                    false => format!("it is busy: its timer did not answer within {patience}"),
                }));
            }
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        let ticks: Vec<u64> =
            self.words().iter().take(ANSWERS).map(|word| word.load(Ordering::Acquire)).collect();
        Ok(smallest_step(&ticks).ok_or_else(|| STILL.to_owned()))
    }

    fn launch(&self, function: Handle, parameters: &mut [*mut c_void]) -> Answer<()> {
        let launch = Launch { function, blocks: 1, threads: 1, stream: self.stream, parameters };
        // SAFETY: both callers give the parameters that `kernels.ptx` declares for their kernel; the
        // mailbox lives until `drop` has waited for the stream.
        unsafe { self.shared.driver.launch(launch) }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words were allocated there, 8-byte aligned, for as long as `self` lives;
        // host and device write them whole.
        unsafe { std::slice::from_raw_parts(self.mailbox.host.cast(), MAILBOX_WORDS) }
    }

    /// The host's number: the first 32 bits.
    fn number(&self) -> &AtomicU32 {
        // SAFETY: within the mailbox and aligned, as `words`; nobody reads it as a word meanwhile.
        unsafe { &*self.mailbox.host.cast() }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // A device that is gone refuses all of this; there is nobody to tell.
        let _ = self.shared.make_current();
        self.number().store(STOP, Ordering::Release);
        let _ = self.shared.driver.stream_wait(self.stream);
        let _ = self.shared.driver.stream_destroy(self.stream);
        let _ = self.shared.driver.host_free(self.mailbox);
    }
}

/// The address of a parameter.
pub fn address<T>(parameter: &mut T) -> *mut c_void {
    (&raw mut *parameter).cast()
}

/// The smallest step in readings that ascend; 0 ends them.
fn smallest_step(ticks: &[u64]) -> Option<u64> {
    let read = ticks.iter().take_while(|tick| **tick != 0).copied().collect::<Vec<_>>();
    read.windows(2).filter_map(|pair| pair[1].checked_sub(pair[0])).filter(|step| *step > 0).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_step_is_the_resolution() {
        assert_eq!(smallest_step(&[100, 132, 196, 228, 0, 0]), Some(32));
        assert_eq!(smallest_step(&[1_024, 2_048, 4_096]), Some(1_024));
        assert_eq!(smallest_step(&[5, 0, 9]), None, "one reading");
        assert_eq!(smallest_step(&[]), None);
    }
}
