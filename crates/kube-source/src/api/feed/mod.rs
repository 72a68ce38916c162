//! The queue from background tasks to the thread of the caller, with a wakeup of the
//! thread: an eventfd on Linux.
//!
//! The watches are async tasks, and the thread that owns the kernel's state is not: it sleeps
//! in `poll` with netlink sockets, timers and signals. A channel cannot be polled together
//! with those, a descriptor can. So each item goes into a bounded channel, and an eventfd is
//! readable as long as the channel may have items.
//!
//! For example: three tasks send 600 items while the thread is in a sync. The first item
//! writes the eventfd, the next 511 write nothing, and the rest wait with their tasks, so that
//! the API server is not read faster than its objects are used. The thread wakes, clears the
//! eventfd, takes 512 items, and sets the eventfd again, because there may be more.
//!
//! What must stay true:
//!
//! - Nothing is lost or reordered: a missed deletion would leave rules until the next list.
//! - The wakeup is cleared *before* items are taken, and set *after* one is sent. The other
//!   way round, an item sent between the two would wait until something else happens.
//! - Memory is bounded by size, not only by number. At first it was by number alone.

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
///
/// It only has to keep tasks and thread from waiting for each other at each item.
const MAX_QUEUED_ITEMS: usize = 512;

/// Maximum size of all queued items, in KiB of JSON.
///
/// One EndpointSlice may have 2 MiB, so a number of items alone does not bound
/// the memory: 512 of them are a GiB. Two of the largest fit.
const MAX_QUEUED_KIB: u32 = 4096;

/// Maximum number of items of one [`take`](Receiver::take), so that other work
/// is not starved: tasks refill the queue while it is emptied, and without a limit the thread
/// would not return during the list of a large cluster.
const MAX_ITEMS_PER_TAKE: usize = MAX_QUEUED_ITEMS;

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
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_ITEMS);
    let space = Arc::new(Semaphore::new(MAX_QUEUED_KIB as usize));
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
    /// Not an item of the queue: it must arrive although the queue is full, and the state
    /// before it does not matter.
    fatal: OnceLock<String>,
}

/// The sending end. Each watcher has a clone, which shares queue, space and wakeup.
#[derive(Clone, Debug)]
pub struct Sender {
    items: mpsc::Sender<(Item, Option<OwnedSemaphorePermit>)>,
    /// The free part of [`MAX_QUEUED_KIB`].
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
        // At most the whole space: an item that wants more than there is would wait for ever.
        let space = u32::try_from(bytes / 1024)
            .unwrap_or(MAX_QUEUED_KIB)
            .min(MAX_QUEUED_KIB);
        // `ok` loses nothing: the error is that of a closed semaphore, which nobody closes.
        // Items below 1 KiB, almost all, cost no permit; 512 of them are half a MiB.
        let permit = match space {
            0 => None,
            space => Arc::clone(&self.space).acquire_many_owned(space).await.ok(),
        };
        // The permit travels with the item, and its drop in `take` frees the space.
        match self.items.send((item, permit)).await {
            Ok(()) => self.wake(),
            // Without a receiver the program ends. An error would have to be handled by each
            // task, all in the same way; a task that never returns ends with the runtime.
            Err(_) => std::future::pending().await,
        }
    }

    /// Makes [`Receiver::take`] fail with this reason from now on. The first reason
    /// counts.
    pub fn fatal(&self, reason: impl Into<String>) {
        // An error means that there is a reason already. Later ones are often its consequences.
        let _ = self.shared.fatal.set(reason.into());
        self.wake();
    }

    /// Wakes the thread of the receiver without an item: for what other threads have for it, such
    /// as a request to stop or the result of a search.
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
        // Before `try_recv`: items sent before are seen below, and later senders wake the thread
        // again. After it, the wakeup of an item sent in between would be erased.
        self.shared.wakeup.clear();
        if let Some(reason) = self.shared.fatal.get() {
            return Err(reason.clone());
        }
        let mut items = Vec::new();
        while items.len() < MAX_ITEMS_PER_TAKE {
            match self.items.try_recv() {
                Ok((item, _permit)) => items.push(item),
                // Empty, or all senders are gone: there are no more items, which is no error.
                Err(_) => return Ok(items),
            }
        }
        // The limit is reached, so more items may be queued. Their senders have set the wakeup
        // that was cleared above, and nobody else would wake the thread for them.
        self.shared.wakeup.set();
        Ok(items)
    }

    /// Waits until there is something to take, or until a timeout. Returns `false` after
    /// the timeout, and on Linux also after a signal.
    ///
    /// A caller that polls the descriptor together with others does not need this.
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
        let count = 3 * MAX_QUEUED_ITEMS + 1;
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
            assert!(some.len() <= MAX_ITEMS_PER_TAKE);
            all.extend(names(some));
        }
        task.join().unwrap();
        assert!((0..count).map(|number| number.to_string()).eq(all));
    }

    #[test]
    fn large_items_wait_for_space() {
        let (sender, mut receiver) = feed().unwrap();
        let half = MAX_QUEUED_KIB as usize * 512;
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
