//! Error codes of HNS.

use std::fmt;

/// A result code of COM (`HRESULT`).
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct HResult(u32);

/// Defines the codes that have names.
macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)+) => {
        impl HResult {
            $(
                #[doc = concat!("`", stringify!($name), "`: ", $text, ".")]
                pub const $name: Self = Self($code);
            )+

            /// All codes that have names.
            pub const NAMED: &[Self] = &[$(Self::$name,)+];

            /// Returns the name of the code in the header files of Windows.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)+
                    _ => None,
                }
            }

            /// Returns a description of the code.
            pub fn description(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)+
                    _ => None,
                }
            }
        }
    };
}

codes! {
    E_NOTIMPL = 0x8000_4001, "this version of HNS does not implement the call";
    E_FAIL = 0x8000_4005, "unspecified failure";
    E_ACCESSDENIED = 0x8007_0005, "the caller is not an administrator";
    E_INVALIDARG = 0x8007_0057, "an argument is invalid";
    ERROR_NOT_FOUND = 0x8007_0490, "the object does not exist";
    HCN_E_NETWORK_NOT_FOUND = 0x803B_0001, "the network does not exist";
    HCN_E_ENDPOINT_NOT_FOUND = 0x803B_0002, "the endpoint does not exist";
    HCN_E_LAYER_NOT_FOUND = 0x803B_0003, "the layer of the switch does not exist";
    HCN_E_SWITCH_NOT_FOUND = 0x803B_0004, "the switch does not exist";
    HCN_E_SUBNET_NOT_FOUND = 0x803B_0005, "the network has no such subnet";
    HCN_E_ADAPTER_NOT_FOUND = 0x803B_0006, "the network adapter does not exist";
    HCN_E_PORT_NOT_FOUND = 0x803B_0007, "the port of the switch does not exist";
    HCN_E_POLICY_NOT_FOUND = 0x803B_0008, "the policy does not exist";
    HCN_E_VFP_PORTSETTING_NOT_FOUND = 0x803B_0009, "the port of the switch has no settings of the Virtual Filtering Platform";
    HCN_E_INVALID_NETWORK = 0x803B_000A, "the settings of the network are invalid";
    HCN_E_INVALID_NETWORK_TYPE = 0x803B_000B, "the type of the network is invalid";
    HCN_E_INVALID_ENDPOINT = 0x803B_000C, "the settings of the endpoint are invalid";
    HCN_E_INVALID_POLICY = 0x803B_000D, "the settings of the policy are invalid";
    HCN_E_INVALID_POLICY_TYPE = 0x803B_000E, "the type of the policy is invalid";
    HCN_E_INVALID_REMOTE_ENDPOINT_OPERATION = 0x803B_000F, "a remote endpoint does not support the operation";
    HCN_E_NETWORK_ALREADY_EXISTS = 0x803B_0010, "the network already exists";
    HCN_E_LAYER_ALREADY_EXISTS = 0x803B_0011, "the layer of the switch already exists";
    HCN_E_POLICY_ALREADY_EXISTS = 0x803B_0012, "the policy already exists";
    HCN_E_PORT_ALREADY_EXISTS = 0x803B_0013, "the port already exists";
    HCN_E_ENDPOINT_ALREADY_ATTACHED = 0x803B_0014, "the endpoint is already attached";
    HCN_E_REQUEST_UNSUPPORTED = 0x803B_0015, "the request is not supported";
    HCN_E_MAPPING_NOT_SUPPORTED = 0x803B_0016, "the port mapping is not supported";
    HCN_E_DEGRADED_OPERATION = 0x803B_0017, "the network has lost its adapter, and does not support the operation";
    HCN_E_SHARED_SWITCH_MODIFICATION = 0x803B_0018, "a shared switch cannot be modified";
    HCN_E_GUID_CONVERSION_FAILURE = 0x803B_0019, "the identifier is not a GUID";
    HCN_E_REGKEY_FAILURE = 0x803B_001A, "the registry cannot be read or written";
    HCN_E_INVALID_JSON = 0x803B_001B, "the document is not valid JSON";
    HCN_E_INVALID_JSON_REFERENCE = 0x803B_001C, "the document refers to an object that is invalid";
    HCN_E_ENDPOINT_SHARING_DISABLED = 0x803B_001D, "the endpoint cannot be shared";
    HCN_E_INVALID_IP = 0x803B_001E, "an address is invalid";
    HCN_E_SWITCH_EXTENSION_NOT_FOUND = 0x803B_001F, "the extension of the switch does not exist";
    HCN_E_MANAGER_STOPPED = 0x803B_0020, "HNS is stopping";
    GCN_E_MODULE_NOT_FOUND = 0x803B_0021, "the module of the guest does not exist";
    GCN_E_NO_REQUEST_HANDLERS = 0x803B_0022, "the guest has no handler for the request";
    GCN_E_REQUEST_UNSUPPORTED = 0x803B_0023, "the guest does not support the request";
    GCN_E_RUNTIMEKEYS_FAILED = 0x803B_0024, "the guest cannot write its registry";
    GCN_E_NETADAPTER_TIMEOUT = 0x803B_0025, "the network adapter of the guest did not appear in time";
    GCN_E_NETADAPTER_NOT_FOUND = 0x803B_0026, "the network adapter of the guest does not exist";
    GCN_E_NETCOMPARTMENT_NOT_FOUND = 0x803B_0027, "the network compartment of the guest does not exist";
    GCN_E_NETINTERFACE_NOT_FOUND = 0x803B_0028, "the network interface of the guest does not exist";
    GCN_E_DEFAULTNAMESPACE_EXISTS = 0x803B_0029, "the guest already has a default namespace";
    HCN_E_ICS_DISABLED = 0x803B_002A, "internet connection sharing is disabled";
    HCN_E_ENDPOINT_NAMESPACE_ALREADY_EXISTS = 0x803B_002B, "the endpoint already has a namespace";
    HCN_E_ENTITY_HAS_REFERENCES = 0x803B_002C, "other objects refer to the object";
    HCN_E_INVALID_INTERNAL_PORT = 0x803B_002D, "the internal port is invalid";
    HCN_E_NAMESPACE_ATTACH_FAILED = 0x803B_002E, "the namespace cannot be attached";
    HCN_E_ADDR_INVALID_OR_RESERVED = 0x803B_002F, "an address is invalid or reserved";
    HCN_E_INVALID_PREFIX = 0x803B_0030, "the prefix is invalid";
    HCN_E_OBJECT_USED_AFTER_UNLOAD = 0x803B_0031, "the object was unloaded";
    HCN_E_INVALID_SUBNET = 0x803B_0032, "the subnet is invalid";
    HCN_E_INVALID_IP_SUBNET = 0x803B_0033, "an address does not belong to the subnet";
    HCN_E_ENDPOINT_NOT_ATTACHED = 0x803B_0034, "the endpoint is not attached";
    HCN_E_ENDPOINT_NOT_LOCAL = 0x803B_0035, "the endpoint is not on this host";
    HCN_E_VFP_NOT_ALLOWED = 0x803B_0037, "the Virtual Filtering Platform is not allowed on the switch";
}

impl HResult {
    /// Creates a code from its number.
    pub const fn new(code: u32) -> Self {
        Self(code)
    }

    /// Creates a code from the number of an error of Win32.
    pub const fn from_win32(error: u32) -> Self {
        Self(0x8007_0000 | error & 0xffff)
    }

    /// Returns the number.
    pub const fn code(self) -> u32 {
        self.0
    }

    /// Returns whether the code means success.
    pub const fn is_success(self) -> bool {
        self.0 >> 31 == 0
    }

    /// Returns whether an object does not exist.
    pub fn is_not_found(self) -> bool {
        [
            Self::ERROR_NOT_FOUND,
            Self::HCN_E_NETWORK_NOT_FOUND,
            Self::HCN_E_ENDPOINT_NOT_FOUND,
            Self::HCN_E_POLICY_NOT_FOUND,
        ]
        .contains(&self)
    }
}

impl fmt::Display for HResult {
    /// Writes `description (NAME, 0xNUMBER)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.description(), self.name()) {
            (Some(description), Some(name)) => {
                write!(f, "{description} ({name}, {:#010x})", self.0)
            }
            _ => write!(f, "error {:#010x}", self.0),
        }
    }
}

impl fmt::Debug for HResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "HResult({:#010x})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use windows_sys::Win32::Foundation;

    use super::*;

    #[test]
    fn codes_have_the_numbers_of_windows() {
        macro_rules! compare {
            ($($name:ident)+) => {
                [$((HResult::$name, Foundation::$name as u32),)+]
            };
        }
        let expected = compare! {
            E_NOTIMPL E_FAIL E_ACCESSDENIED E_INVALIDARG
            HCN_E_NETWORK_NOT_FOUND
            HCN_E_ENDPOINT_NOT_FOUND
            HCN_E_LAYER_NOT_FOUND
            HCN_E_SWITCH_NOT_FOUND
            HCN_E_SUBNET_NOT_FOUND
            HCN_E_ADAPTER_NOT_FOUND
            HCN_E_PORT_NOT_FOUND
            HCN_E_POLICY_NOT_FOUND
            HCN_E_VFP_PORTSETTING_NOT_FOUND
            HCN_E_INVALID_NETWORK
            HCN_E_INVALID_NETWORK_TYPE
            HCN_E_INVALID_ENDPOINT
            HCN_E_INVALID_POLICY
            HCN_E_INVALID_POLICY_TYPE
            HCN_E_INVALID_REMOTE_ENDPOINT_OPERATION
            HCN_E_NETWORK_ALREADY_EXISTS
            HCN_E_LAYER_ALREADY_EXISTS
            HCN_E_POLICY_ALREADY_EXISTS
            HCN_E_PORT_ALREADY_EXISTS
            HCN_E_ENDPOINT_ALREADY_ATTACHED
            HCN_E_REQUEST_UNSUPPORTED
            HCN_E_MAPPING_NOT_SUPPORTED
            HCN_E_DEGRADED_OPERATION
            HCN_E_SHARED_SWITCH_MODIFICATION
            HCN_E_GUID_CONVERSION_FAILURE
            HCN_E_REGKEY_FAILURE
            HCN_E_INVALID_JSON
            HCN_E_INVALID_JSON_REFERENCE
            HCN_E_ENDPOINT_SHARING_DISABLED
            HCN_E_INVALID_IP
            HCN_E_SWITCH_EXTENSION_NOT_FOUND
            HCN_E_MANAGER_STOPPED
            GCN_E_MODULE_NOT_FOUND
            GCN_E_NO_REQUEST_HANDLERS
            GCN_E_REQUEST_UNSUPPORTED
            GCN_E_RUNTIMEKEYS_FAILED
            GCN_E_NETADAPTER_TIMEOUT
            GCN_E_NETADAPTER_NOT_FOUND
            GCN_E_NETCOMPARTMENT_NOT_FOUND
            GCN_E_NETINTERFACE_NOT_FOUND
            GCN_E_DEFAULTNAMESPACE_EXISTS
            HCN_E_ICS_DISABLED
            HCN_E_ENDPOINT_NAMESPACE_ALREADY_EXISTS
            HCN_E_ENTITY_HAS_REFERENCES
            HCN_E_INVALID_INTERNAL_PORT
            HCN_E_NAMESPACE_ATTACH_FAILED
            HCN_E_ADDR_INVALID_OR_RESERVED
            HCN_E_INVALID_PREFIX
            HCN_E_OBJECT_USED_AFTER_UNLOAD
            HCN_E_INVALID_SUBNET
            HCN_E_INVALID_IP_SUBNET
            HCN_E_ENDPOINT_NOT_ATTACHED
            HCN_E_ENDPOINT_NOT_LOCAL
            HCN_E_VFP_NOT_ALLOWED
        };
        for (code, number) in expected {
            assert_eq!(code.code(), number, "{code:?}");
            assert!(!code.is_success());
        }
        // `ERROR_NOT_FOUND` is an error of Win32, not a result of COM.
        let not_found = HResult::from_win32(Foundation::ERROR_NOT_FOUND);
        assert_eq!(not_found, HResult::ERROR_NOT_FOUND);
        assert_eq!(HResult::NAMED.len(), expected.len() + 1);
    }

    #[test]
    fn a_code_displays_with_name_and_number() {
        assert_eq!(
            HResult::HCN_E_PORT_ALREADY_EXISTS.to_string(),
            "the port already exists (HCN_E_PORT_ALREADY_EXISTS, 0x803b0013)"
        );
        assert_eq!(HResult::new(0x8000_ffff).to_string(), "error 0x8000ffff");
        assert!(HResult::new(0).is_success() && HResult::new(1).is_success());
    }
}
