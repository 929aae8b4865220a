//! Connections that the proxy opened itself, known by their two ends.
//!
//! An upstream that leads back to the proxy (through a name, or the address of another interface)
//! shows in no configuration. It shows when a request arrives over a connection that is the
//! proxy's own. A detour over a second program does not show here.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpStream;

/// The two ends of a connection: who opened it, and to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    from: (IpAddr, u16),
    to: (IpAddr, u16),
}

impl Route {
    /// Of a connection that somebody opened to here; `None` if it has ended already.
    pub(crate) fn accepted(stream: &TcpStream) -> Option<Route> {
        Some(Route { from: end(stream.peer_addr().ok()?), to: end(stream.local_addr().ok()?) })
    }

    /// Who opened it.
    pub(crate) fn peer(self) -> IpAddr {
        self.from.0
    }

    fn opened(stream: &TcpStream) -> Option<Route> {
        Some(Route { from: end(stream.local_addr().ok()?), to: end(stream.peer_addr().ok()?) })
    }
}

/// The same for both sides, whichever family their sockets are of.
fn end(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// All connections that the proxy has open to its upstream.
#[derive(Clone, Default)]
pub(crate) struct Routes(Arc<Mutex<HashSet<Route>>>);

impl Routes {
    /// Notes `stream` for as long as the answer lives.
    pub(crate) fn note(&self, stream: &TcpStream) -> Noted {
        let route = Route::opened(stream);
        self.lock().extend(route);
        Noted { routes: self.clone(), route }
    }

    pub(crate) fn contains(&self, route: Route) -> bool {
        self.lock().contains(&route)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Route>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection among [`Routes`]; dropping it takes it out.
pub(crate) struct Noted {
    routes: Routes,
    route: Option<Route>,
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(route) = self.route {
            self.routes.lock().remove(&route);
        }
    }
}
