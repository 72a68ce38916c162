//! Reports of a source to the program that uses it.

use std::fmt;
use std::time::{Duration, Instant};

use vipline_service_model::{Kind, ObjectName};

use super::parsed::Dropped;

/// Receives the reports of a source, for logs and metrics.
///
/// Tasks call the methods; they must not block.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Reports an event of a request with `method` to the API server at `host`.
    fn request(&self, host: &str, method: &str, event: RequestEvent);

    /// Reports whether the objects of a kind are up to date.
    fn contact(&self, kind: Kind, contact: Contact);

    /// Reports a problem, or its end.
    fn report(&self, report: &Report);
}

/// An event of a request.
///
/// Exhaustive: metrics count each of these events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestEvent {
    /// The rate limit delayed the request for this time. Zero without a delay.
    RateLimited(Duration),
    /// The headers of a response with this status code arrived.
    Response(u16),
    /// The request ended without a response.
    Failed,
    /// The request ended after this time. Not reported for a watch.
    Finished(Duration),
}

/// Whether the objects of a kind are up to date.
///
/// Exhaustive: a kind is in sync or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Contact {
    /// A watch reports every change.
    InSync,
    /// Changes since this time may be missing.
    LostSince(Instant),
}

/// Severity of a [`Report`].
///
/// Exhaustive: programs map each severity to a log level.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// A detail for developers.
    Debug,
    /// Information for operators.
    Info,
    /// A problem.
    Warning,
}

/// A problem of a source, or its end. Displays as one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum Report {
    /// An environment variable holds no valid proxy URL. The source ignores it.
    InvalidProxy {
        /// Name of the variable.
        variable: &'static str,
    },
    /// Credentials could not be read again. The former credentials stay in use.
    CredentialsNotRenewed {
        /// The error.
        reason: String,
    },
    /// Parts of an object cannot be read. The rest is used.
    PartsDropped {
        /// Kind of the object.
        kind: Kind,
        /// Name of the object.
        name: ObjectName,
        /// The parts and the reason.
        dropped: Dropped,
    },
    /// No part of an object can be read. Its former state stays in use.
    Unreadable {
        /// Kind of the object.
        kind: Kind,
        /// Name of the object.
        name: ObjectName,
        /// The error.
        reason: String,
    },
    /// The server does not serve an optional kind.
    Unavailable {
        /// The kind.
        kind: Kind,
        /// The response of the server.
        reason: String,
    },
    /// A list or watch failed. The known objects stay.
    Failed {
        /// Kind of the objects.
        kind: Kind,
        /// The error.
        reason: String,
    },
    /// A list or watch failed with the same error as before.
    FailedAgain {
        /// Kind of the objects.
        kind: Kind,
        /// The error.
        reason: String,
        /// Time until the next attempt.
        wait: Duration,
    },
    /// A watch reports changes again after a failure.
    Recovered {
        /// Kind of the objects.
        kind: Kind,
    },
    /// The server does not end a list within a watch. The source lists before it watches.
    UnendingList {
        /// Kind of the objects.
        kind: Kind,
    },
    /// A list within a watch failed. The source lists before it watches.
    WatchListFailed {
        /// Kind of the objects.
        kind: Kind,
        /// The error.
        reason: String,
    },
    /// The server rejected the default field selector. The source lists without it.
    FieldSelectorRejected {
        /// Kind of the objects.
        kind: Kind,
        /// The error.
        reason: String,
    },
    /// A watch was silent for too long and is restarted.
    SilentWatch {
        /// Kind of the objects.
        kind: Kind,
    },
    /// An Event was discarded before it was sent.
    EventDiscarded {
        /// The reason.
        reason: String,
    },
    /// An Event could not be created.
    EventFailed {
        /// The error.
        reason: String,
        /// Whether the Event before was created.
        is_first: bool,
    },
}

impl Report {
    /// Returns the severity.
    pub fn severity(&self) -> Severity {
        match self {
            Self::InvalidProxy { .. }
            | Self::PartsDropped { .. }
            | Self::Unreadable { .. }
            | Self::Failed { .. }
            | Self::EventFailed { is_first: true, .. } => Severity::Warning,
            Self::Unavailable { .. } | Self::Recovered { .. } => Severity::Info,
            _ => Severity::Debug,
        }
    }

    /// Returns the kind of an object of which at least a part cannot be read.
    pub fn object_problem(&self) -> Option<Kind> {
        match self {
            Self::PartsDropped { kind, .. } | Self::Unreadable { kind, .. } => Some(*kind),
            _ => None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidProxy { variable } => {
                write!(f, "{variable} is not a valid proxy URL; ignoring it")
            }
            Self::CredentialsNotRenewed { reason } => write!(
                f,
                "credentials could not be read again: {reason}; using the former ones"
            ),
            Self::PartsDropped {
                kind,
                name,
                dropped,
            } => write!(f, "{kind} {name}: {dropped}; using the rest of the object"),
            Self::Unreadable { kind, name, reason } => write!(
                f,
                "{kind} {name} cannot be read: {reason}; keeping its former state"
            ),
            Self::Unavailable { kind, reason } => write!(
                f,
                "{} are not available: {reason}; continuing without them",
                plural(*kind)
            ),
            Self::Failed { kind, reason } => write!(
                f,
                "{}: {reason}; retrying, and keeping the known objects",
                plural(*kind)
            ),
            Self::FailedAgain { kind, reason, wait } => {
                write!(f, "{}: {reason}; retrying in {wait:?}", plural(*kind))
            }
            Self::Recovered { kind } => {
                write!(f, "{}: in sync with the API server again", plural(*kind))
            }
            Self::UnendingList { kind } => write!(
                f,
                "{}: the server does not end a list within a watch; listing before the watch \
                 instead",
                plural(*kind)
            ),
            Self::WatchListFailed { kind, reason } => write!(
                f,
                "{}: list within a watch failed: {reason}; listing before the watch instead",
                plural(*kind)
            ),
            Self::FieldSelectorRejected { kind, reason } => write!(
                f,
                "{}: {reason}; retrying without a field selector",
                plural(*kind)
            ),
            Self::SilentWatch { kind } => write!(
                f,
                "{}: the watch is silent; restarting the watch",
                plural(*kind)
            ),
            Self::EventDiscarded { reason } => write!(f, "event discarded: {reason}"),
            Self::EventFailed { reason, is_first } => {
                write!(f, "event could not be created: {reason}")?;
                match is_first {
                    true => f.write_str("; later events may be lost, too"),
                    false => Ok(()),
                }
            }
        }
    }
}

/// Returns the plural of a kind.
pub(super) fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::EndpointSlice => "EndpointSlices",
        Kind::Namespace => "Namespaces",
        Kind::Node => "Nodes",
        Kind::Service => "Services",
        Kind::ServiceCidr => "ServiceCIDRs",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, MutexGuard};

    use super::*;

    /// An observer that stores everything.
    #[derive(Debug, Default)]
    pub(in crate::api) struct Recorded(Mutex<Reports>);

    #[derive(Debug, Default)]
    pub(in crate::api) struct Reports {
        pub(in crate::api) requests: Vec<(String, String, RequestEvent)>,
        pub(in crate::api) contacts: BTreeMap<Kind, Contact>,
    }

    impl Recorded {
        pub(in crate::api) fn reports(&self) -> MutexGuard<'_, Reports> {
            self.0.lock().unwrap()
        }
    }

    impl Observer for Recorded {
        fn request(&self, host: &str, method: &str, event: RequestEvent) {
            let request = (host.to_owned(), method.to_owned(), event);
            self.reports().requests.push(request);
        }

        fn contact(&self, kind: Kind, contact: Contact) {
            self.reports().contacts.insert(kind, contact);
        }

        fn report(&self, _: &Report) {}
    }

    #[test]
    fn a_report_is_one_line_for_operators() {
        let kind = Kind::EndpointSlice;
        let reason = || "connection refused".to_owned();
        for (report, severity, text) in [
            (
                Report::Failed {
                    kind,
                    reason: reason(),
                },
                Severity::Warning,
                "EndpointSlices: connection refused; retrying, and keeping the known objects",
            ),
            (
                Report::FailedAgain {
                    kind,
                    reason: reason(),
                    wait: Duration::from_secs(2),
                },
                Severity::Debug,
                "EndpointSlices: connection refused; retrying in 2s",
            ),
            (
                Report::Recovered { kind },
                Severity::Info,
                "EndpointSlices: in sync with the API server again",
            ),
            (
                Report::EventFailed {
                    reason: reason(),
                    is_first: true,
                },
                Severity::Warning,
                "event could not be created: connection refused; later events may be lost, too",
            ),
        ] {
            assert_eq!(
                (report.to_string(), report.severity()),
                (text.into(), severity)
            );
        }
    }
}
