//! The queue from background tasks to the thread of the caller, with a wakeup of the
//! thread: an eventfd on Linux.

#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", allow(dead_code, reason = "only tests use it"))]
mod condvar;

#[cfg(target_os = "linux")]
mod eventfd;

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use vipline_service_model::{Event, Kind};

#[cfg(not(target_os = "linux"))]
use condvar::Wakeup;
#[cfg(target_os = "linux")]
use eventfd::Wakeup;

/// Maximum number of queued items. Senders wait for space.
const CAPACITY: usize = 512;

/// Maximum size of all queued items, in KiB of JSON.
///
/// One EndpointSlice may have 2 MiB, so a number of items alone does not bound
/// the memory.
const CAPACITY_KIB: u32 = 4096;

/// Maximum number of items of one [`take`](Receiver::take), so that other work
/// is not starved.
const MAX_BATCH: usize = CAPACITY;

/// An item of the queue.
///
/// Exhaustive: a caller that skips an item misses a change.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "events are almost all there is")]
pub enum Item {
    /// An event of an object.
    Event(Event),
    /// All objects of a kind were listed.
    Listed(Kind),
}

/// Creates both ends of a feed.
///
/// # Errors
///
/// On Linux, the eventfd cannot be created.
pub fn feed() -> io::Result<(Sender, Receiver)> {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let space = Arc::new(Semaphore::new(CAPACITY_KIB as usize));
    let shared = Arc::new(Shared {
        wakeup: Wakeup::new()?,
        fatal: OnceLock::new(),
    });
    let sender = Sender {
        items: sender,
        space,
        shared: Arc::clone(&shared),
    };
    let receiver = Receiver {
        items: receiver,
        shared,
    };
    Ok((sender, receiver))
}

#[derive(Debug)]
struct Shared {
    wakeup: Wakeup,
    fatal: OnceLock<String>,
}

/// The sending end. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sender {
    items: mpsc::Sender<(Item, Option<OwnedSemaphorePermit>)>,
    /// The free part of [`CAPACITY_KIB`].
    space: Arc<Semaphore>,
    shared: Arc<Shared>,
}

impl Sender {
    /// Sends an item when there is space. Items of one task keep their order.
    ///
    /// Never returns if the receiver was dropped.
    pub async fn send(&self, item: Item) {
        self.send_sized(item, 0).await;
    }

    /// Sends an item of `bytes` bytes of JSON when there is space.
    pub async fn send_sized(&self, item: Item, bytes: usize) {
        let space = u32::try_from(bytes / 1024)
            .unwrap_or(CAPACITY_KIB)
            .min(CAPACITY_KIB);
        // The semaphore is never closed.
        let permit = match space {
            0 => None,
            space => Arc::clone(&self.space).acquire_many_owned(space).await.ok(),
        };
        match self.items.send((item, permit)).await {
            Ok(()) => self.wake(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Makes [`Receiver::take`] fail with this reason from now on. The first reason
    /// counts.
    pub fn fatal(&self, reason: impl Into<String>) {
        let _ = self.shared.fatal.set(reason.into());
        self.wake();
    }

    /// Wakes the thread of the receiver without an item.
    pub fn wake(&self) {
        self.shared.wakeup.set();
    }
}

/// The receiving end, for the thread of the caller.
///
/// On Linux, its descriptor is readable while items are queued, and after [`Sender::fatal`]
/// or [`Sender::wake`].
#[derive(Debug)]
pub struct Receiver {
    items: mpsc::Receiver<(Item, Option<OwnedSemaphorePermit>)>,
    shared: Arc<Shared>,
}

impl Receiver {
    /// Returns queued items in order. Does not block.
    ///
    /// # Errors
    ///
    /// Returns the reason of [`Sender::fatal`].
    pub fn take(&mut self) -> Result<Vec<Item>, String> {
        // Items sent before are seen below. Later senders wake the thread again.
        self.shared.wakeup.clear();
        if let Some(reason) = self.shared.fatal.get() {
            return Err(reason.clone());
        }
        let mut items = Vec::new();
        while items.len() < MAX_BATCH {
            match self.items.try_recv() {
                Ok((item, _permit)) => items.push(item),
                Err(_) => return Ok(items),
            }
        }
        self.shared.wakeup.set();
        Ok(items)
    }

    /// Waits until there is something to take, or until a timeout. Returns `false` after
    /// the timeout, and on Linux also after a signal.
    ///
    /// # Errors
    ///
    /// On Linux, the system call `poll` fails.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        self.shared.wakeup.wait(timeout)
    }
}

#[cfg(target_os = "linux")]
impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.wakeup.as_fd()
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test has threads of its own")]

    use super::*;

    /// Waits until there are items. Returns whether there are.
    pub(in crate::api) fn wait(receiver: &Receiver, timeout: Duration) -> bool {
        receiver.wait(Some(timeout)).unwrap()
    }

    fn is_readable(receiver: &Receiver) -> bool {
        wait(receiver, Duration::ZERO)
    }

    fn deletion(name: &str) -> Item {
        Item::Event(Event::NodeDeleted(name.into()))
    }

    fn names(items: Vec<Item>) -> Vec<String> {
        let names = items.into_iter().map(|item| match item {
            Item::Event(Event::NodeDeleted(name)) => name.to_string(),
            other => panic!("{other:?}"),
        });
        names.collect()
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    }

    #[test]
    fn items_are_received_in_order_and_wake_the_thread() {
        let (sender, mut receiver) = feed().unwrap();
        assert!(!is_readable(&receiver));
        runtime().block_on(async {
            for name in ["a", "b", "c"] {
                sender.send(deletion(name)).await;
            }
        });
        assert!(is_readable(&receiver));
        assert_eq!(names(receiver.take().unwrap()), ["a", "b", "c"]);
        assert!(!is_readable(&receiver));
        assert!(receiver.take().unwrap().is_empty());
        runtime().block_on(sender.send(deletion("d")));
        assert!(is_readable(&receiver), "it becomes readable again");
        assert_eq!(names(receiver.take().unwrap()), ["d"]);
    }

    #[test]
    fn a_sender_waits_for_space_and_loses_nothing() {
        let (sender, mut receiver) = feed().unwrap();
        let count = 3 * CAPACITY + 1;
        let task = std::thread::spawn(move || {
            runtime().block_on(async {
                for number in 0..count {
                    sender.send(deletion(&number.to_string())).await;
                }
            });
        });
        let mut all = Vec::new();
        while all.len() < count {
            assert!(wait(&receiver, Duration::from_secs(20)));
            let some = receiver.take().unwrap();
            assert!(some.len() <= MAX_BATCH);
            all.extend(names(some));
        }
        task.join().unwrap();
        assert!((0..count).map(|number| number.to_string()).eq(all));
    }

    #[test]
    fn large_items_wait_for_space() {
        let (sender, mut receiver) = feed().unwrap();
        let half = CAPACITY_KIB as usize * 512;
        runtime().block_on(async {
            for bytes in [half, half] {
                sender.send_sized(deletion("large"), bytes).await;
            }
            let mut third = Box::pin(sender.send_sized(deletion("third"), 100 * half));
            let wait = Duration::from_millis(20);
            assert!(tokio::time::timeout(wait, &mut third).await.is_err());
            assert_eq!(receiver.take().unwrap().len(), 2);
            third.await;
            sender.send(deletion("small")).await;
        });
        assert_eq!(names(receiver.take().unwrap()), ["third", "small"]);
    }

    #[test]
    fn a_wakeup_without_items_is_taken() {
        let (sender, mut receiver) = feed().unwrap();
        sender.wake();
        assert!(is_readable(&receiver));
        assert!(receiver.take().unwrap().is_empty());
        assert!(!is_readable(&receiver));
    }

    #[test]
    fn the_first_fatal_reason_overtakes_everything() {
        let (sender, mut receiver) = feed().unwrap();
        runtime().block_on(sender.send(deletion("a")));
        sender.fatal("one");
        sender.fatal("two");
        assert!(is_readable(&receiver));
        assert_eq!(receiver.take().unwrap_err(), "one");
    }
}
