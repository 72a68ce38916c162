//! The threads of asynchronous tasks.

use std::panic;
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, process, thread};

use tokio::runtime::{Builder, Runtime};
use tracing::error;

/// Held while the panic hook is replaced. Two calls at a time would each restore what
/// they found, so one of the two hooks would stay.
static REPLACED_HOOK: Mutex<()> = Mutex::new(());

/// Starts threads for tasks that use sockets and timers.
///
/// Logs an error and ends the process if a thread cannot be created: then tokio panics, and
/// unwinding waits for its other threads without end.
///
/// # Errors
///
/// Descriptors cannot be created.
pub fn start(threads: usize, name: &'static str) -> io::Result<Runtime> {
    #[cfg(unix)]
    check_descriptors()?;
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(threads).thread_name(name);
    let _held = REPLACED_HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let former = Arc::new(panic::take_hook());
    let (starting, of_others) = (thread::current().id(), Arc::clone(&former));
    panic::set_hook(Box::new(move |panic| {
        // The hook belongs to the process, and a panic of another thread meanwhile is
        // none of ours: its thread may catch it.
        if thread::current().id() != starting {
            return of_others(panic);
        }
        let reason = panic.payload().downcast_ref::<String>();
        let reason = reason.map_or("unknown reason", String::as_str);
        error!("cannot start the threads of {name}: {reason}");
        process::exit(1);
    }));
    let runtime = builder.enable_all().build();
    drop(panic::take_hook());
    if let Some(former) = Arc::into_inner(former) {
        panic::set_hook(former);
    }
    runtime
}

/// Returns an error if the process cannot open the descriptors of a runtime.
///
/// Without the sockets for signals, tokio panics instead.
#[cfg(unix)]
fn check_descriptors() -> io::Result<()> {
    use std::os::unix::net::UnixStream;

    /// An epoll instance and its duplicate, an eventfd, a pair of sockets for
    /// signals and a duplicate of one.
    const DESCRIPTORS: usize = 6;

    let pairs = (0..DESCRIPTORS / 2).map(|_| UnixStream::pair());
    pairs.collect::<io::Result<Vec<_>>>().map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    /// Message of the panics of this test.
    const ON_PURPOSE: &str = "on purpose";

    /// Number of such panics that reached the hook of this test.
    static CALLS: AtomicUsize = AtomicUsize::new(0);

    fn panic_on_purpose() {
        panic::catch_unwind(|| panic::panic_any(ON_PURPOSE)).unwrap_err();
    }

    #[test]
    fn a_panic_of_another_thread_ends_nothing_and_the_hook_stays() {
        let former = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref() == Some(&ON_PURPOSE) {
                CALLS.fetch_add(1, Ordering::Relaxed);
            } else {
                former(panic);
            }
        }));
        let has_ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    panic_on_purpose();
                }
            });
            let start = || (0..50).for_each(|_| drop(start(1, "test").unwrap()));
            let starts = [scope.spawn(start), scope.spawn(start)];
            starts.into_iter().for_each(|start| start.join().unwrap());
            has_ended.store(true, Ordering::Relaxed);
        });
        let before = CALLS.load(Ordering::Relaxed);
        panic_on_purpose();
        assert_eq!(CALLS.load(Ordering::Relaxed), before + 1);
    }
}
