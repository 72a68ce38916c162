//! Limits on log lines about objects.
//!
//! Whoever may create a Service decides how many lines a warning for each object, address or
//! port would be, on every node: two Services that contest 500 addresses with 100 ports each
//! were 100,016 lines in 12 seconds. So a kind of line about objects is logged at most
//! [`MAX_LINES`] times, and one more line has the number of the others. Metrics and pages
//! have all of them.
//!
//! [`each`] is for lines that are known together. [`LineLimit`] is for lines that come one by
//! one, or in many small syncs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

/// Maximum number of lines of one kind in one sync, or within [`WINDOW`].
pub const MAX_LINES: usize = 16;

/// Time in which a [`LineLimit`] admits [`MAX_LINES`] lines.
///
/// Syncs are a second apart, and a large change is many syncs. An operator has read 16 lines
/// in 5 s, and a flood that lasts is 3 lines a second.
pub const WINDOW: Duration = Duration::from_secs(5);

/// Stack size of the thread that logs the number of lines.
const STACK: usize = 128 << 10;

/// Calls `log` with the first [`MAX_LINES`] items, and logs the number of the others.
///
/// `what` names the items in the plural, such as `contested addresses`.
pub fn each<T>(what: &str, items: impl IntoIterator<Item = T>, log: impl FnMut(T)) {
    let mut items = items.into_iter();
    items.by_ref().take(MAX_LINES).for_each(log);
    report(what, items.count());
}

fn report(what: &str, omitted: usize) {
    if omitted > 0 {
        warn!("{omitted} more {what}; only the first {MAX_LINES} are in the log");
    }
}

/// A limit of [`MAX_LINES`] lines within [`WINDOW`].
///
/// When the time is over, a line has the number of the others. Dropping the limit logs that
/// line, too.
#[derive(Debug)]
pub struct LineLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    what: &'static str,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    /// `None` before the first line.
    end: Option<Instant>,
    lines: usize,
    omitted: usize,
}

impl LineLimit {
    /// Creates the limit of a kind of lines. `what` names their subjects in the plural, such
    /// as `problems of objects`.
    pub fn new(what: &'static str) -> Self {
        Self(Arc::new(Shared {
            what,
            window: Mutex::default(),
        }))
    }

    /// Returns whether the caller may log a line. Otherwise the line counts as omitted.
    pub fn admits(&self) -> bool {
        let now = Instant::now();
        let mut window = self.0.window();
        if window.end.is_none_or(|end| end <= now) {
            self.0.report(&mut window);
            *window = Window {
                end: Some(now + WINDOW),
                ..Window::default()
            };
        }
        window.lines += 1;
        if window.lines <= MAX_LINES {
            return true;
        }
        window.omitted += 1;
        if window.omitted == 1 {
            self.report_at_end_of_window();
        }
        false
    }

    /// Starts a thread that logs the number of omitted lines.
    ///
    /// A flood may be over, so that no later line could bring the number along. Without the
    /// thread the next line or the drop of the limit does.
    fn report_at_end_of_window(&self) {
        let shared = Arc::clone(&self.0);
        let builder = thread::Builder::new().name("log-limit".to_owned());
        let _ = builder.stack_size(STACK).spawn(move || {
            thread::sleep(WINDOW);
            shared.report(&mut shared.window());
        });
    }
}

impl Shared {
    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, window: &mut Window) {
        report(self.what, std::mem::take(&mut window.omitted));
    }
}

impl Drop for LineLimit {
    fn drop(&mut self) {
        self.0.report(&mut self.0.window());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_logs_the_first_items_and_consumes_all() {
        let (mut logged, mut seen) = (Vec::new(), 0);
        let items = (0..100).inspect(|_| seen += 1);
        each("items", items, |item| logged.push(item));
        assert_eq!(logged, (0..MAX_LINES).collect::<Vec<_>>());
        assert_eq!(seen, 100);
    }

    #[test]
    fn a_limit_admits_lines_again_when_its_window_is_over() {
        let limit = LineLimit::new("lines");
        let admitted = |count| (0..count).filter(|_| limit.admits()).count();
        assert_eq!(admitted(100), MAX_LINES);
        assert_eq!(limit.0.window().omitted, 100 - MAX_LINES);
        thread::sleep(WINDOW + WINDOW / 2);
        assert_eq!(limit.0.window().omitted, 0, "the thread reported them");
        assert_eq!(admitted(3), 3);
    }
}
