//! The log in the Event Log of Windows: one event for each line.
#![allow(unsafe_code, reason = "the functions of Windows are foreign")]

use std::io::{self, Write};
use std::ptr::null;
use std::sync::Arc;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::System::EventLog::{
    DeregisterEventSource, EVENTLOG_ERROR_TYPE, EVENTLOG_INFORMATION_TYPE, EVENTLOG_WARNING_TYPE,
    REPORT_EVENT_TYPE, RegisterEventSourceW, ReportEventW,
};

/// Identifier of all events. In `EventCreate.exe`, a program of Windows with messages for
/// other programs, its message is the text of the event.
const EVENT_ID: u32 = 1;

/// Maximum length of a text in UTF-16 units: `ReportEventW` accepts 31,839.
const MAX_UNITS: usize = 31_000;

/// A source of events. Lines are lost if Windows does not open it.
#[derive(Clone, Debug)]
pub(super) struct EventLog(Arc<Source>);

#[derive(Debug)]
struct Source(HANDLE);

// SAFETY: Windows permits all threads to use the handle.
unsafe impl Send for Source {}
// SAFETY: As above.
unsafe impl Sync for Source {}

impl EventLog {
    /// Opens a source in the log `Application`.
    pub(super) fn open(name: &str) -> Self {
        let name = wide(name);
        // SAFETY: The text ends with a terminator, and null is this computer.
        let handle = unsafe { RegisterEventSourceW(null(), name.as_ptr()) };
        Self(Arc::new(Source(handle)))
    }

    fn report(&self, kind: REPORT_EVENT_TYPE, text: &str) {
        let Source(handle) = &*self.0;
        let text = wide(text);
        let texts = [text.as_ptr()];
        if handle.is_null() {
            return;
        }
        // SAFETY: The handle is open, and the text ends with a terminator.
        unsafe {
            ReportEventW(
                *handle,
                kind,
                0,
                EVENT_ID,
                std::ptr::null_mut(),
                1,
                0,
                texts.as_ptr(),
                null(),
            );
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: The handle is open, and not used afterwards.
            unsafe { DeregisterEventSource(self.0) };
        }
    }
}

/// Writes lines of one level.
#[derive(Debug)]
pub(super) struct Lines {
    log: EventLog,
    kind: REPORT_EVENT_TYPE,
}

impl Write for Lines {
    /// Reports an event. The log writes each line with one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.log.report(self.kind, text.trim_end());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for EventLog {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        let (log, kind) = (self.clone(), EVENTLOG_INFORMATION_TYPE);
        Lines { log, kind }
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> Lines {
        let kind = match *line.level() {
            Level::ERROR => EVENTLOG_ERROR_TYPE,
            Level::WARN => EVENTLOG_WARNING_TYPE,
            _ => EVENTLOG_INFORMATION_TYPE,
        };
        let log = self.clone();
        Lines { log, kind }
    }
}

/// Returns text as UTF-16 with a terminator. Long text is cut.
fn wide(text: &str) -> Vec<u16> {
    let units = text.encode_utf16().filter(|unit| *unit != 0);
    units.take(MAX_UNITS).chain([0]).collect()
}
