//! DNS over UDP and TCP.
