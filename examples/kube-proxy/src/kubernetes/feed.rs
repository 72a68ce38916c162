//! The way from tasks to the engine thread: a bounded queue and a descriptor
//! that wakes the thread up.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use vipline_service_model::{Event, Kind};

/// How many items may wait; whoever has more waits, too.
const CAPACITY: usize = 512;

/// The maximum size of all waiting items, in KiB of JSON.
///
/// One slice may have 2 MiB, so a number of items alone bounds no memory.
const ROOM: u32 = 4096;

/// How many items are taken at a time, so that other things get their turn.
const AT_ONCE: usize = CAPACITY;

/// What a task tells the engine thread.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "events are almost all there is")]
pub enum Item {
    /// Something happened to an object.
    Event(Event),
    /// All objects of a kind have been told of.
    Listed(Kind),
}

/// Returns both ends of a feed.
///
/// # Errors
///
/// The system has no room for another descriptor.
pub fn feed() -> io::Result<(Sender, Receiver)> {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let room = Arc::new(Semaphore::new(ROOM as usize));
    let shared = Arc::new(Shared {
        bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        has_rung: AtomicBool::new(false),
        fatal: OnceLock::new(),
    });
    let sender = Sender {
        items: sender,
        room,
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
    bell: OwnedFd,
    /// Whether the bell was rung since the thread looked last.
    has_rung: AtomicBool,
    fatal: OnceLock<String>,
}

impl Shared {
    fn ring(&self) {
        if !self.has_rung.swap(true, Ordering::AcqRel) {
            // A counter that is full wakes up as well.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

/// The end of the tasks; cheap to clone.
#[derive(Clone, Debug)]
pub struct Sender {
    items: mpsc::Sender<(Item, Option<OwnedSemaphorePermit>)>,
    /// The free part of the [room](ROOM).
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
}

impl Sender {
    /// Hands on an item, once there is room; items of one task keep their order.
    ///
    /// After the receiver is gone nothing matters any more, so this never ends
    /// then.
    pub async fn send(&self, item: Item) {
        self.send_sized(item, 0).await;
    }

    /// Hands on an item that was so many bytes of JSON, once there is room.
    pub async fn send_sized(&self, item: Item, bytes: usize) {
        let room = u32::try_from(bytes / 1024).unwrap_or(ROOM).min(ROOM);
        // Nobody closes the semaphore.
        let permit = match room {
            0 => None,
            room => Arc::clone(&self.room).acquire_many_owned(room).await.ok(),
        };
        match self.items.send((item, permit)).await {
            Ok(()) => self.shared.ring(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Ends the process for a reason, of which the first counts.
    pub fn fatal(&self, reason: impl Into<String>) {
        let _ = self.shared.fatal.set(reason.into());
        self.shared.ring();
    }
}

/// The end of the engine thread.
///
/// It becomes readable when there is something to take.
#[derive(Debug)]
pub struct Receiver {
    items: mpsc::Receiver<(Item, Option<OwnedSemaphorePermit>)>,
    shared: Arc<Shared>,
}

impl Receiver {
    /// Returns what has come, in the order in which it came; never waits.
    ///
    /// # Errors
    ///
    /// Why the process must end.
    pub fn take(&mut self) -> Result<Vec<Item>, String> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.bell, &mut count);
        // After this whoever sends rings again, and what was sent before is seen.
        self.shared.has_rung.swap(false, Ordering::AcqRel);
        if let Some(reason) = self.shared.fatal.get() {
            return Err(reason.clone());
        }
        let mut items = Vec::new();
        while items.len() < AT_ONCE {
            match self.items.try_recv() {
                Ok((item, _room)) => items.push(item),
                Err(_) => return Ok(items),
            }
        }
        self.shared.ring();
        Ok(items)
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wait;

    fn is_readable(receiver: &Receiver) -> bool {
        wait::readable(receiver.as_fd(), &[], Some(Duration::ZERO)).unwrap()
    }

    fn gone(name: &str) -> Item {
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
    fn what_is_sent_is_taken_in_order_and_heard_of() {
        let (sender, mut receiver) = feed().unwrap();
        assert!(!is_readable(&receiver));
        runtime().block_on(async {
            for name in ["a", "b", "c"] {
                sender.send(gone(name)).await;
            }
        });
        assert!(is_readable(&receiver));
        assert_eq!(names(receiver.take().unwrap()), ["a", "b", "c"]);
        assert!(!is_readable(&receiver));
        assert!(receiver.take().unwrap().is_empty());
        runtime().block_on(sender.send(gone("d")));
        assert!(is_readable(&receiver), "the bell rings again");
        assert_eq!(names(receiver.take().unwrap()), ["d"]);
    }

    #[test]
    fn who_has_more_than_there_is_room_for_waits_and_loses_nothing() {
        let (sender, mut receiver) = feed().unwrap();
        let count = 3 * CAPACITY + 1;
        let task = std::thread::spawn(move || {
            runtime().block_on(async {
                for number in 0..count {
                    sender.send(gone(&number.to_string())).await;
                }
            });
        });
        let mut all = Vec::new();
        while all.len() < count {
            let patience = Some(Duration::from_secs(20));
            assert!(wait::readable(receiver.as_fd(), &[], patience).unwrap());
            let some = receiver.take().unwrap();
            assert!(some.len() <= AT_ONCE);
            all.extend(names(some));
        }
        task.join().unwrap();
        assert!((0..count).map(|number| number.to_string()).eq(all));
    }

    #[test]
    fn large_items_wait_for_room() {
        let (sender, mut receiver) = feed().unwrap();
        let half = ROOM as usize * 512;
        runtime().block_on(async {
            for bytes in [half, half] {
                sender.send_sized(gone("large"), bytes).await;
            }
            let mut third = Box::pin(sender.send_sized(gone("third"), 100 * half));
            let wait = Duration::from_millis(20);
            assert!(tokio::time::timeout(wait, &mut third).await.is_err());
            assert_eq!(receiver.take().unwrap().len(), 2);
            third.await;
            sender.send(gone("small")).await;
        });
        assert_eq!(names(receiver.take().unwrap()), ["third", "small"]);
    }

    #[test]
    fn the_first_fatal_reason_overtakes_everything() {
        let (sender, mut receiver) = feed().unwrap();
        runtime().block_on(sender.send(gone("a")));
        sender.fatal("one");
        sender.fatal("two");
        assert!(is_readable(&receiver));
        assert_eq!(receiver.take().unwrap_err(), "one");
    }
}
