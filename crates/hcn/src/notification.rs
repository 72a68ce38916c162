//! Notifications.

use crate::HResult;

/// A notification of HNS.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Notification {
    /// Kind of the notification: the number of a constant `HcnNotification…`.
    pub kind: u32,
    /// Result of the change.
    pub status: HResult,
    /// Data of the notification, which is JSON; may be empty.
    pub data: String,
}

impl Notification {
    /// `HcnNotificationNetworkCreate`: a network was created.
    pub const NETWORK_CREATED: u32 = 2;
    /// `HcnNotificationNetworkDelete`: a network was deleted.
    pub const NETWORK_DELETED: u32 = 4;
    /// `HcnNotificationNetworkEndpointAttached`: an endpoint was attached to a namespace.
    pub const ENDPOINT_ATTACHED: u32 = 9;
    /// `HcnNotificationNetworkEndpointDetached`: an endpoint was detached from its
    /// namespace.
    pub const ENDPOINT_DETACHED: u32 = 16;
    /// `HcnNotificationServiceDisconnect`: HNS stopped, and the registration has ended.
    pub const SERVICE_DISCONNECTED: u32 = 0x0100_0000;

    /// Creates a notification.
    pub fn new(kind: u32, status: HResult, data: impl Into<String>) -> Self {
        let data = data.into();
        Self { kind, status, data }
    }
}

#[cfg(test)]
mod tests {
    use windows_sys::Win32::System::HostComputeNetwork as hcn;

    use super::*;

    #[test]
    fn kinds_have_the_numbers_of_windows() {
        for (kind, number) in [
            (
                Notification::NETWORK_CREATED,
                hcn::HcnNotificationNetworkCreate,
            ),
            (
                Notification::NETWORK_DELETED,
                hcn::HcnNotificationNetworkDelete,
            ),
            (
                Notification::ENDPOINT_ATTACHED,
                hcn::HcnNotificationNetworkEndpointAttached,
            ),
            (
                Notification::ENDPOINT_DETACHED,
                hcn::HcnNotificationNetworkEndpointDetached,
            ),
            (
                Notification::SERVICE_DISCONNECTED,
                hcn::HcnNotificationServiceDisconnect,
            ),
        ] {
            assert_eq!(kind, number.cast_unsigned());
        }
    }
}
