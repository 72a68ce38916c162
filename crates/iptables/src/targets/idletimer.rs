//! `-j IDLETIMER`: notifications of idle interfaces.

use std::borrow::Cow;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;

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

/// Length of a label with its NUL byte.
const MAX_IDLETIMER_LABEL_SIZE: usize = 28;
/// Value of `timer_type`.
const XT_IDLETIMER_ALARM: u8 = 1;

/// `struct idletimer_tg_info_v1`.
impl Structure for Idletimer<'_> {
    const NAME: &'static str = "IDLETIMER";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u32(self.timeout?);
        out.text(self.label.as_deref()?, MAX_IDLETIMER_LABEL_SIZE)?;
        out.u8(self.send_nl_msg.into());
        out.u8(if self.alarm { XT_IDLETIMER_ALARM } else { 0 });
        out.pointer();
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let timeout = reader.u32()?;
        let label = reader.text(MAX_IDLETIMER_LABEL_SIZE)?;
        let [send_nl_msg, timer_type] = reader.array()?;
        Some(Self {
            timeout: Some(timeout),
            label: Some(label.into()),
            alarm: timer_type & XT_IDLETIMER_ALARM != 0,
            send_nl_msg: send_nl_msg != 0,
        })
    }
}
