//! `-j IDLETIMER`: notifications of idle interfaces.

use std::borrow::Cow;

use crate::field::extension;

extension! {
    /// Notifies processes of idle interfaces: `-j IDLETIMER --timeout 60 --label eth0`.
    ///
    /// iptables requires a timeout and a label.
    pub struct Idletimer<'a> = "-j IDLETIMER" {
        /// Timeout in seconds, not 0.
        timeout: Option<u32> = "--timeout",
        /// Name in `/sys/class/xt_idletimer/timers`.
        label: Option<Cow<'a, str>> = "--label",
        /// Whether the timer wakes a suspended host.
        alarm: bool = "--alarm",
        /// Whether netlink messages are sent.
        send_nl_msg: bool = "--send_nl_msg",
    }
    complete |it| it.timeout.is_some_and(|timeout| timeout > 0) && it.label.is_some();
}
