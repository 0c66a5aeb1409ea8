//! TCP between hosts: what one rank does over its connections to the ranks of other hosts.
//!
//! Two shapes of traffic. A [`HostRing`] moves large buffers: each rank that drives one has the two neighbouring
//! hosts on its sides, and the hosts' sums go round while they are received, added and sent on. A [`Mesh`] joins the
//! leaders of all hosts for what is small: a barrier, or a few values reduced by recursive doubling.
//!
//! Connections are handed in authenticated, non-blocking and without delay. Each frame has a header that must be
//! the expected one to the last bit, so ranks that diverge fail at once, on both ends, instead of hanging.

mod channel;
mod duplex;
mod frame;
mod interface;
mod mesh;
mod patience;
mod peer_fault;
mod plan;
mod ring;
mod rounds;
mod slice_handler;
#[cfg(test)]
mod tests;

pub(in crate::collective) use interface::interface_of;
pub(in crate::collective) use mesh::Mesh;
pub(in crate::collective) use patience::Patience;
pub(in crate::collective) use peer_fault::{Broken, PeerFaultKind};
pub(in crate::collective) use ring::HostRing;
pub(in crate::collective) use slice_handler::{DeadlineState, Fold, SliceHandler};
