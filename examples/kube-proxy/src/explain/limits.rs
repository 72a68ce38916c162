//! An environment in which packets exceed all limits, or none.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use proxy_core::evaluator::{Environment, Interface, Limited, Loss, Question, Route, RouteQuery};
use proxy_core::nftables::expr::AddrType;

/// An environment with an assumption about all limits, which records whether a rule asked.
pub(super) struct Limits<'a> {
    environment: &'a dyn Environment,
    is_over: bool,
    is_asked: AtomicBool,
}

impl<'a> Limits<'a> {
    /// Wraps an environment.
    pub(super) fn new(environment: &'a dyn Environment, is_over: bool) -> Self {
        Self {
            environment,
            is_over,
            is_asked: AtomicBool::new(false),
        }
    }

    /// Returns whether a rule asked about a limit.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }
}

impl Environment for Limits<'_> {
    fn route(&self, query: &RouteQuery<'_>) -> Option<Route> {
        self.environment.route(query)
    }

    fn preferred_source(&self, query: &RouteQuery<'_>) -> Option<IpAddr> {
        self.environment.preferred_source(query)
    }

    fn addr_type(&self, addr: IpAddr, interface: Option<&Interface>) -> Option<AddrType> {
        self.environment.addr_type(addr, interface)
    }

    fn interface_addr(&self, interface: &Interface, destination: IpAddr) -> Option<IpAddr> {
        self.environment.interface_addr(interface, destination)
    }

    fn is_over(&self, _: Limited<'_>) -> Option<bool> {
        self.is_asked.store(true, Ordering::Relaxed);
        Some(self.is_over)
    }

    fn receive_loss(&self, input: &Interface) -> Option<Loss> {
        self.environment.receive_loss(input)
    }

    fn route_loss(&self, query: &RouteQuery<'_>, is_local: bool) -> Option<Loss> {
        self.environment.route_loss(query, is_local)
    }

    fn send_loss(&self, output: &Interface) -> Option<Loss> {
        self.environment.send_loss(output)
    }

    fn is_bridge(&self, interface: &Interface) -> bool {
        self.environment.is_bridge(interface)
    }

    fn answer(&self, question: &Question<'_>) -> Option<bool> {
        self.environment.answer(question)
    }
}
