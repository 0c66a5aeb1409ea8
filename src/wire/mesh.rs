//! What client and agents say to set up logins between hosts: kinds 12 to 15, and 115 to 117 back.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Client to agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeshAsk {
    /// Which meshes this account is part of.
    Look(MeshLook),
    /// Write these files.
    Apply(Box<MeshApply>),
    /// Log in to these hosts by plain `ssh`.
    Try(MeshTry),
    /// Take out all that was written for a mesh.
    Remove(MeshRemove),
}

/// Agent to client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeshTold {
    /// Answer to [`MeshAsk::Look`].
    Seen(MeshSeen),
    /// Answer to [`MeshAsk::Apply`] and [`MeshAsk::Remove`].
    Done(MeshDone),
    /// Answer to [`MeshAsk::Try`].
    Tried(MeshTried),
}

/// See [`MeshAsk::Look`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshLook {}

/// The meshes that an account is part of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshSeen {
    /// Each once, sorted.
    pub meshes: Vec<MeshFound>,
    /// Why `~/.ssh` can't be used, with the remedy.
    #[serde(default)]
    pub problem: Option<String>,
}

/// A mesh that a host knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshFound {
    /// Eight hexadecimal digits.
    pub id: String,
    /// The public half of its key as `type base64`, where its private half is there.
    #[serde(default)]
    pub public: Option<String>,
}

/// See [`MeshAsk::Apply`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshApply {
    /// What the host shall have.
    pub plan: MeshPlan,
    /// The private key in OpenSSH's format; `None` to say only what would change.
    #[serde(default)]
    pub private: Option<PrivateKey>,
}

/// What every host of a mesh has; the same on all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshPlan {
    /// Eight hexadecimal digits.
    pub id: String,
    /// The public key as `type base64`.
    pub public: String,
    /// The line for `authorized_keys`.
    pub authorized: String,
    /// The whole `ssh_config` of the mesh.
    pub config: String,
    /// The host keys of all its hosts.
    pub known_hosts: String,
}

/// A private key in OpenSSH's format.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PrivateKey(pub String);

// It must not reach a log through `{:?}`.
impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// See [`MeshAsk::Remove`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshRemove {
    /// The mesh.
    pub id: String,
    /// Say only what would change.
    pub dry: bool,
}

/// What was changed, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshDone {
    /// In the order in which they are made.
    pub changes: Vec<MeshChange>,
    /// Why the rest was not made, with the remedy.
    #[serde(default)]
    pub problem: Option<String>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshChange {
    /// As a person writes it: `~/.ssh/config`.
    pub path: String,
    /// What becomes of it: `new, 0600`.
    pub what: String,
    /// The lines that are written, secrets left out.
    #[serde(default)]
    pub lines: Vec<String>,
}

/// See [`MeshAsk::Try`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshTry {
    /// Names as `ssh` takes them.
    pub peers: Vec<String>,
}

/// How the logins went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshTried {
    /// Each peer, and why the login failed if it did.
    pub results: Vec<(String, Option<String>)>,
}
