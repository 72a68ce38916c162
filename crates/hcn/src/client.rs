//! The client of HNS on Windows: calls of `computenetwork.dll` and `vmcompute.dll`.
#![allow(unsafe_code, reason = "the functions of Windows are foreign")]
#![cfg_attr(
    not(windows),
    allow(dead_code, unreachable_pub, reason = "compiled to check its types")
)]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::mpsc::{Receiver, Sender, channel};

use windows_sys::Win32::System::Com::CoTaskMemFree;
use windows_sys::Win32::System::HostComputeNetwork as hcn;
use windows_sys::core::{GUID, HRESULT, PCWSTR, PWSTR};

use crate::functions::{Calls, HNSCall, SdnRoutes};
use crate::text::{Kind, TextService};
use crate::{Error, HResult, Id, Notification};

/// The query for an object that was just written.
const ALL: &str = r#"{"SchemaVersion":{"Major":2,"Minor":0}}"#;

/// Defines the functions of a kind.
macro_rules! calls {
    ($name:ident: $kind:literal, $($call:ident: $function:path),+) => {
        const $name: Calls = Calls { kind: $kind, $($call: $function),+ };
    };
}

calls!(NETWORK: "network", enumerate: hcn::HcnEnumerateNetworks, open: hcn::HcnOpenNetwork,
    modify: hcn::HcnModifyNetwork, query: hcn::HcnQueryNetworkProperties,
    delete: hcn::HcnDeleteNetwork, close: hcn::HcnCloseNetwork);
calls!(ENDPOINT: "endpoint", enumerate: hcn::HcnEnumerateEndpoints, open: hcn::HcnOpenEndpoint,
    modify: hcn::HcnModifyEndpoint, query: hcn::HcnQueryEndpointProperties,
    delete: hcn::HcnDeleteEndpoint, close: hcn::HcnCloseEndpoint);
calls!(LOAD_BALANCER: "load balancer", enumerate: hcn::HcnEnumerateLoadBalancers,
    open: hcn::HcnOpenLoadBalancer, modify: hcn::HcnModifyLoadBalancer,
    query: hcn::HcnQueryLoadBalancerProperties, delete: hcn::HcnDeleteLoadBalancer,
    close: hcn::HcnCloseLoadBalancer);

impl Calls {
    /// Returns the functions for objects of a kind.
    fn of(kind: Kind) -> Result<&'static Self, Error> {
        Ok(match kind {
            Kind::Network => &NETWORK,
            Kind::Endpoint => &ENDPOINT,
            Kind::LoadBalancer => &LOAD_BALANCER,
            Kind::SdnRoute => &sdn_routes()?.calls,
        })
    }

    /// Opens an object.
    fn open(&'static self, id: &Id) -> Result<Handle, Error> {
        let guid = guid(self.kind, id)?;
        let (mut raw, mut record) = (null_mut(), null_mut());
        // SAFETY: All pointers are valid during the call.
        let code = unsafe { (self.open)(&raw const guid, &raw mut raw, &raw mut record) };
        check(self.kind, id.as_str(), code, record)?;
        Ok(Handle { raw, calls: self })
    }
}

/// Returns the functions for SDN routes.
fn sdn_routes() -> Result<&'static SdnRoutes, Error> {
    let routes = SdnRoutes::get();
    routes.ok_or_else(|| Error::Rejected {
        operation: "SDN route",
        object: "".into(),
        code: HResult::E_NOTIMPL,
        message: "this version of Windows has no SDN routes".into(),
    })
}

/// A handle of HNS, which is closed on drop.
struct Handle {
    raw: *mut c_void,
    calls: &'static Calls,
}

impl Handle {
    /// Returns the document of the object.
    fn read(&self, query: &str) -> Result<String, Error> {
        let query = wide(query);
        let (mut text, mut record) = (null_mut(), null_mut());
        let (text_at, record_at) = (&raw mut text, &raw mut record);
        // SAFETY: The handle is open, and all pointers are valid during the call.
        let code = unsafe { (self.calls.query)(self.raw, query.as_ptr(), text_at, record_at) };
        let text = take(text);
        check(self.calls.kind, "", code, record).map(|()| text)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: The handle is open, and of the kind of the function.
        unsafe { (self.calls.close)(self.raw) };
    }
}

/// The client of HNS. HNS has no sessions, so that a client has no state.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Client;

impl Client {
    /// Creates a client.
    pub fn new() -> Self {
        Self
    }
}

impl TextService for Client {
    fn request(&mut self, method: &str, path: &str) -> Result<String, Error> {
        let [verb, at, body] = [method, path, ""].map(wide);
        let mut text = null_mut();
        let reply = &raw mut text;
        // SAFETY: All pointers are valid during the call.
        let code = unsafe { HNSCall(verb.as_ptr(), at.as_ptr(), body.as_ptr(), reply) };
        let text = take(text);
        check("request", path, code, null_mut()).map(|()| text)
    }

    fn enumerate(&mut self, kind: Kind, query: &str) -> Result<String, Error> {
        let calls = Calls::of(kind)?;
        let query = wide(query);
        let (mut text, mut record) = (null_mut(), null_mut());
        // SAFETY: All pointers are valid during the call.
        let code = unsafe { (calls.enumerate)(query.as_ptr(), &raw mut text, &raw mut record) };
        let text = take(text);
        check(calls.kind, "", code, record).map(|()| text)
    }

    fn read(&mut self, kind: Kind, id: &Id, query: &str) -> Result<String, Error> {
        Calls::of(kind)?.open(id)?.read(query)
    }

    fn create(
        &mut self,
        kind: Kind,
        network: Option<&Id>,
        id: &Id,
        settings: &str,
    ) -> Result<String, Error> {
        let calls = Calls::of(kind)?;
        let network = network.map(|id| NETWORK.open(id)).transpose()?;
        let network = network.as_ref().map_or(null_mut(), |network| network.raw);
        let guid = guid(calls.kind, id)?;
        let settings = wide(settings);
        let (guid, settings) = (&raw const guid, settings.as_ptr());
        let (mut handle, mut record) = (null_mut(), null_mut());
        let (raw, at) = (&raw mut handle, &raw mut record);
        // SAFETY: All pointers are valid during the call.
        let code = unsafe {
            match kind {
                Kind::Network => hcn::HcnCreateNetwork(guid, settings, raw, at),
                Kind::Endpoint => hcn::HcnCreateEndpoint(network, guid, settings, raw, at),
                Kind::LoadBalancer => hcn::HcnCreateLoadBalancer(guid, settings, raw, at),
                Kind::SdnRoute => (sdn_routes()?.create)(guid, settings, raw, at),
            }
        };
        check(calls.kind, id.as_str(), code, record)?;
        let handle = Handle { raw: handle, calls };
        handle.read(ALL)
    }

    fn modify(&mut self, kind: Kind, id: &Id, settings: &str) -> Result<String, Error> {
        let handle = Calls::of(kind)?.open(id)?;
        let (settings, mut record) = (wide(settings), null_mut());
        let calls = handle.calls;
        // SAFETY: The handle is open, and all pointers are valid during the call.
        let code = unsafe { (calls.modify)(handle.raw, settings.as_ptr(), &raw mut record) };
        check(calls.kind, id.as_str(), code, record)?;
        handle.read(ALL)
    }

    fn delete(&mut self, kind: Kind, id: &Id) -> Result<(), Error> {
        let calls = Calls::of(kind)?;
        let (guid, mut record) = (guid(calls.kind, id)?, null_mut());
        // SAFETY: All pointers are valid during the call.
        let code = unsafe { (calls.delete)(&raw const guid, &raw mut record) };
        check(calls.kind, id.as_str(), code, record)
    }
}

/// A registration for notifications, which ends on drop.
#[derive(Debug)]
pub struct Watch {
    handle: *mut c_void,
    sender: *mut Sender<Notification>,
}

impl Watch {
    /// Registers for the notifications of networks, namespaces and attached endpoints. HNS
    /// does not report load balancers.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] if HNS rejects the call.
    pub fn open() -> Result<(Self, Receiver<Notification>), Error> {
        let (sender, receiver) = channel();
        let mut watch = Self {
            handle: null_mut(),
            sender: Box::into_raw(Box::new(sender)),
        };
        // SAFETY: The sender lives until the registration ends.
        let code = unsafe {
            hcn::HcnRegisterServiceCallback(
                Some(notify),
                watch.sender.cast(),
                &raw mut watch.handle,
            )
        };
        check("watch", "", code, null_mut())?;
        Ok((watch, receiver))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: The registration is open unless it is null. HNS does not call the function
        // after the registration ends, so that no other code uses the sender.
        unsafe {
            if !self.handle.is_null() {
                hcn::HcnUnregisterServiceCallback(self.handle);
            }
            drop(Box::from_raw(self.sender));
        }
    }
}

/// Sends a notification to the receiver of a watch.
unsafe extern "system" fn notify(kind: u32, context: *const c_void, status: HRESULT, data: PCWSTR) {
    // SAFETY: The context is the sender of a watch, and HNS owns the text.
    let (sender, data) = unsafe { (&*context.cast::<Sender<Notification>>(), copy(data)) };
    let status = HResult::new(status.cast_unsigned());
    // The receiver may be gone while the watch is dropped.
    let _ = sender.send(Notification { kind, status, data });
}

/// Returns the GUID of an object. Zero if HNS assigns it.
fn guid(operation: &'static str, id: &Id) -> Result<GUID, Error> {
    let id = id.clone();
    let number = if id.is_empty() { Some(0) } else { id.to_u128() };
    number
        .map(GUID::from_u128)
        .ok_or(Error::InvalidId { operation, id })
}

/// Returns text as UTF-16 with a terminator.
fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

/// Checks a result. As in hcsshim, a call with an error record has failed.
fn check(operation: &'static str, object: &str, code: HRESULT, record: PWSTR) -> Result<(), Error> {
    let (code, message) = (HResult::new(code.cast_unsigned()), take(record));
    if code.is_success() && message.is_empty() {
        return Ok(());
    }
    let (object, message) = (object.into(), message.into());
    Err(Error::Rejected {
        operation,
        object,
        code,
        message,
    })
}

/// Copies text.
///
/// # Safety
///
/// The pointer is null, or points to UTF-16 with a terminator.
unsafe fn copy(text: PCWSTR) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: The text ends with a terminator.
    let units = unsafe {
        let length = (0..).take_while(|&at| *text.add(at) != 0).count();
        std::slice::from_raw_parts(text, length)
    };
    String::from_utf16_lossy(units)
}

/// Copies text that HNS allocated, and frees it.
fn take(text: PWSTR) -> String {
    // SAFETY: HNS returns null, or text with a terminator from the allocator of COM, which
    // this function owns.
    unsafe {
        let copied = copy(text);
        CoTaskMemFree(text.cast());
        copied
    }
}
