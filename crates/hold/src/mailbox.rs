//! From many threads to one that acts, which is woken only for what it listens for.
//!
//! Waking a thread costs both sides some microseconds, and a request is several events. So whoever
//! waits says what is urgent enough to be woken for; everything else lies there until then, or until
//! its time is up. Nothing is lost or overtaken: a wait returns all that was sent, in order.
//!
//! It knows nothing of messages but their urgency. Sending takes a lock that nobody holds for longer
//! than a push or a swap, and never waits for the reader.

use crate::sync::{Arc, AtomicU8, Mutex, MutexGuard, Ordering, Thread, current, park_timeout};
use std::sync::{OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What a message wakes a reader from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// To be known in time.
    Note,
    /// Something is about to begin.
    Arrival,
    /// Always to be acted upon at once.
    Order,
}

pub(crate) trait Urgent {
    fn urgency(&self) -> Urgency;
}

/// So many messages wake the reader whatever they are: memory must not grow while it sleeps.
const MANY: usize = if cfg!(loom) { 2 } else { 1024 };
/// In place of an urgency: the reader is awake and will look again by itself.
const AWAKE: u8 = u8::MAX;

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// The least urgency that wakes the reader, or [`AWAKE`].
    listens: AtomicU8,
    reader: OnceLock<Thread>,
}

struct Queue<T> {
    messages: Vec<T>,
    open: bool,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both ends of a mailbox.
pub(crate) fn mailbox<T: Urgent>() -> (Outlet<T>, Inbox<T>) {
    let queue = Mutex::new(Queue { messages: Vec::new(), open: true });
    let (listens, reader) = (AtomicU8::new(AWAKE), OnceLock::new());
    let shared = Arc::new(Shared { queue, listens, reader });
    (Outlet(Arc::clone(&shared)), Inbox(shared))
}

/// Where messages are put in.
pub(crate) struct Outlet<T>(Arc<Shared<T>>);

impl<T> Clone for Outlet<T> {
    fn clone(&self) -> Self {
        Outlet(Arc::clone(&self.0))
    }
}

impl<T: Urgent> Outlet<T> {
    /// False if nobody will read it.
    pub(crate) fn send(&self, message: T) -> bool {
        let (shared, urgency) = (&*self.0, message.urgency() as u8);
        let many = {
            let mut queue = shared.lock();
            if !queue.open {
                return false;
            }
            queue.messages.push(message);
            queue.messages.len() >= MANY
        };
        // The reader says what it listens for before it looks into the queue under the lock. So
        // either it sees this message there, or the lock has made its word visible here.
        let listens = shared.listens.load(Ordering::SeqCst);
        let wakes = listens != AWAKE && (many || urgency >= listens);
        // One who listens for something else by now has looked into the queue since.
        let word = &shared.listens;
        if wakes
            && word.compare_exchange(listens, AWAKE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            && let Some(reader) = shared.reader.get()
        {
            reader.unpark();
        }
        true
    }
}

/// Where they are read, by one thread; what is sent after it is dropped is refused.
pub(crate) struct Inbox<T>(Arc<Shared<T>>);

impl<T: Urgent> Inbox<T> {
    /// Appends all that was sent to `messages`: at once, if one is at least as urgent as `from` or
    /// there are many; else when such a one comes, or after `timeout`.
    pub(crate) fn wait(&self, from: Urgency, timeout: Duration, messages: &mut Vec<T>) {
        let shared = &*self.0;
        shared.reader.get_or_init(current);
        let began = Instant::now();
        shared.listens.store(from as u8, Ordering::SeqCst);
        let due = {
            let queue = shared.lock();
            let urgent = |message: &T| message.urgency() >= from;
            queue.messages.len() >= MANY || queue.messages.iter().any(urgent)
        };
        while !due && shared.listens.load(Ordering::SeqCst) != AWAKE {
            match timeout.checked_sub(began.elapsed()) {
                Some(left) if !left.is_zero() => park_timeout(left),
                _ => break,
            }
        }
        shared.listens.store(AWAKE, Ordering::SeqCst);
        self.take(messages);
    }

    /// Appends what was sent up to now.
    pub(crate) fn take(&self, messages: &mut Vec<T>) {
        messages.append(&mut self.0.lock().messages);
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.open = false;
        queue.messages = Vec::new();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use Urgency::{Arrival, Note, Order};

    impl Urgent for (Urgency, u32) {
        fn urgency(&self) -> Urgency {
            self.0
        }
    }

    /// Longer than any test: who waits for so long was not woken.
    const EVER: Duration = Duration::from_secs(3600);

    #[test]
    fn only_what_is_listened_for_is_there_at_once() {
        let check = |sent: Urgency, from: Urgency, at_once: bool| {
            let (outlet, inbox) = mailbox();
            let (timeout, mut got) = (Duration::from_millis(20), Vec::new());
            let began = Instant::now();
            assert!(outlet.send((sent, 7)));
            inbox.wait(from, if at_once { EVER } else { timeout }, &mut got);
            assert_eq!(got, [(sent, 7)]);
            assert!(at_once || began.elapsed() >= timeout, "{sent:?} {from:?}");
        };
        check(Note, Note, true);
        check(Note, Arrival, false);
        check(Note, Order, false);
        check(Arrival, Arrival, true);
        check(Arrival, Order, false);
        check(Order, Order, true);
    }

    #[test]
    fn a_sleeper_is_woken_by_what_it_listens_for_and_by_many() {
        let check = |urgency: Urgency, times: usize, from: Urgency| {
            let (outlet, inbox) = mailbox();
            let sender = outlet.clone();
            let reader = std::thread::spawn(move || {
                let mut got = Vec::new();
                while got.len() < times {
                    inbox.wait(from, EVER, &mut got);
                }
                got.len()
            });
            (0..times).for_each(|n| assert!(sender.send((urgency, n as u32))));
            assert_eq!(reader.join().unwrap(), times);
        };
        check(Order, 1, Order);
        check(Arrival, 1, Note);
        check(Note, MANY, Order);
    }

    #[test]
    fn nothing_is_lost_and_each_sender_keeps_its_order() {
        let (outlet, inbox) = mailbox();
        let senders: Vec<_> = (0..4u32)
            .map(|sender| {
                let outlet = outlet.clone();
                std::thread::spawn(move || {
                    for n in 0..20_000 {
                        let urgency = [Note, Arrival, Order][n as usize % 3];
                        assert!(outlet.send((urgency, sender << 24 | n)));
                    }
                    // Last, so that the reader hears of all before it.
                    assert!(outlet.send((Order, sender << 24 | 20_000)));
                })
            })
            .collect();
        let (mut next, mut got, mut waits) = ([0; 4], Vec::new(), 0);
        while next.iter().any(|n| *n <= 20_000) {
            inbox.wait([Note, Arrival, Order][waits % 3], EVER, &mut got);
            waits += 1;
            for (_, message) in got.drain(..) {
                let (sender, n) = ((message >> 24) as usize, message & 0xff_ffff);
                assert_eq!(n, next[sender]);
                next[sender] += 1;
            }
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    }

    #[test]
    fn what_nobody_will_read_is_refused() {
        let (outlet, inbox) = mailbox();
        assert!(outlet.send((Note, 1)));
        drop(inbox);
        assert!(!outlet.send((Order, 2)));
    }
}

/// Every order in which the threads' steps can be seen, by loom: a wake-up that is lost is a thread
/// that waits for ever, which loom reports. `cargo xtask loom` runs these.
#[cfg(all(test, loom))]
mod orders {
    use super::*;
    use Urgency::{Arrival, Note, Order};
    use loom::thread::spawn;

    impl Urgent for (Urgency, u32) {
        fn urgency(&self) -> Urgency {
            self.0
        }
    }

    const EVER: Duration = Duration::from_secs(3600);

    #[test]
    fn a_reader_hears_of_what_it_listens_for() {
        for (sent, from) in [(Order, Order), (Order, Note), (Arrival, Arrival), (Note, Note)] {
            loom::model(move || {
                let (outlet, inbox) = mailbox();
                let sender = spawn(move || assert!(outlet.send((sent, 1))));
                let mut got = Vec::new();
                inbox.wait(from, EVER, &mut got);
                assert_eq!(got, [(sent, 1)]);
                sender.join().unwrap();
            });
        }
    }

    #[test]
    fn a_note_ahead_of_an_order_is_neither_lost_nor_overtaken() {
        loom::model(|| {
            let (outlet, inbox) = mailbox();
            let sender = spawn(move || {
                assert!(outlet.send((Note, 1)));
                assert!(outlet.send((Order, 2)));
            });
            let mut got = Vec::new();
            while got.last() != Some(&(Order, 2)) {
                inbox.wait(Order, EVER, &mut got);
            }
            assert_eq!(got, [(Note, 1), (Order, 2)]);
            sender.join().unwrap();
        });
    }

    #[test]
    fn two_senders_and_a_reader_that_waits_twice_lose_nothing() {
        loom::model(|| {
            let (outlet, inbox) = mailbox();
            let senders = [1, 2].map(|n| {
                let outlet = outlet.clone();
                spawn(move || assert!(outlet.send((Order, n))))
            });
            let mut got = Vec::new();
            while got.len() < 2 {
                inbox.wait(Order, EVER, &mut got);
            }
            got.sort_by_key(|(_, n)| *n);
            assert_eq!(got, [(Order, 1), (Order, 2)]);
            senders.into_iter().for_each(|sender| sender.join().unwrap());
        });
    }

    #[test]
    fn many_wake_whatever_they_are() {
        loom::model(|| {
            let (outlet, inbox) = mailbox();
            let sender = spawn(move || (0..2).for_each(|n| assert!(outlet.send((Note, n)))));
            let mut got = Vec::new();
            inbox.wait(Order, EVER, &mut got);
            assert_eq!(got.len(), MANY);
            sender.join().unwrap();
        });
    }

    #[test]
    fn what_is_sent_while_the_reader_goes_is_refused_or_dropped_with_it() {
        loom::model(|| {
            let (outlet, inbox) = mailbox();
            let sender = outlet.clone();
            let sending = spawn(move || sender.send((Order, 1)));
            drop(inbox);
            let _ = sending.join().unwrap();
            assert!(!outlet.send((Order, 2)));
            assert!(outlet.0.lock().messages.is_empty());
        });
    }
}
