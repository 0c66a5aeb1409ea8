//! The second lock of a GPU, which lies in no directory: an abstract unix socket's name. One socket has a name at a
//! time; it cannot be removed, it ends with the last process that has the socket, and the kernel keeps whose it is after
//! the process that made it has ended. The socket is bound and never listens: no process can connect or send to it.
//!
//! A name is `hvtui-gpu-UUID`, of a MIG slice `hvtui-gpu-GPU.SLICE`, of a run beside another one
//! `hvtui-gpu-UUID.RUN.RANK`. What stands below a GPU's name excludes the whole of it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, netlink,
    recv, send, socket_with,
};

use super::LeaseError;
use super::claim::own_uid;
use super::place::LeaseDir;
use crate::domain::ids::{GpuUuid, Rank, RunId};
use crate::domain::lease::Lease;
use crate::domain::text::os_text;
use crate::procs::status::user_name;

/// What all names begin with.
const HEAD: &str = "hvtui-gpu-";

/// The name of a GPU, or of a slice of `whole`. Another directory of leases has names of its own.
pub(super) fn name(dir: &LeaseDir, gpu: &GpuUuid, whole: Option<&GpuUuid>) -> String {
    let place = match fstat(&dir.fd) {
        Ok(stat) if dir.prefix.is_empty() => {
            format!("{:08x}-", (stat.st_dev.rotate_left(16) ^ stat.st_ino) & 0xFFFF_FFFF)
        }
        _ => String::new(),
    };
    let whole = whole.map(|whole| format!("{whole}.")).unwrap_or_default();
    format!("{HEAD}{place}{whole}{gpu}")
}

/// The name of a rank that uses a GPU beside another run.
pub(super) fn name_beside(dir: &LeaseDir, gpu: &GpuUuid, run: &RunId, rank: Rank) -> String {
    format!("{}.{run}.{rank}", name(dir, gpu, None))
}

/// Takes the name of a GPU, or of a slice of `whole`; else who is in the way, as far as the kernel knows. Its lock's file
/// has excluded others already, unless it was removed.
pub(super) fn take(
    dir: &LeaseDir,
    gpu: &GpuUuid,
    whole: Option<&GpuUuid>,
    share: bool,
) -> Result<Result<OwnedFd, Lease>, LeaseError> {
    let own = name(dir, gpu, whole);
    let taken = take_name(dir, gpu, &own)?;
    // Both put their name there before they look, so of two that exclude each other one sees the other.
    let names = Names::read();
    let in_the_way = match (&taken, whole) {
        (None, _) => Some((gpu, names.of(&own).flatten())),
        (Some(_), Some(whole)) => names.of(&name(dir, whole, None)).map(|uid| (whole, uid)),
        (Some(_), None) => names.below(&own, share).map(|uid| (gpu, uid)),
    };
    Ok(match (taken, in_the_way) {
        (Some(socket), None) => Ok(socket),
        (_, Some((gpu, uid))) => Err(lease(gpu, uid)),
        (None, None) => Err(Lease::unknown(gpu.clone())),
    })
}

/// A socket of this name; `None` when another one has it.
pub(super) fn take_name(dir: &LeaseDir, gpu: &GpuUuid, name: &str) -> Result<Option<OwnedFd>, LeaseError> {
    let bound = || {
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &address)?;
        Ok(socket)
    };
    match bound() {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::ADDRINUSE) => Ok(None),
        Err(e) => {
            let detail = format!("has no second lock, the socket @{name}: {}", os_text(&e.into()));
            Err(LeaseError::File { gpu: gpu.clone(), path: dir.path.clone(), detail })
        }
    }
}

/// Whether a descriptor is the socket of this name.
pub(super) fn is(descriptor: impl AsFd, name: &str) -> bool {
    let address = getsockname(descriptor).and_then(SocketAddrUnix::try_from);
    address.is_ok_and(|address| address.abstract_name() == Some(name.as_bytes()))
}

/// What the kernel alone tells of a holder.
pub(super) fn lease(gpu: &GpuUuid, uid: Option<u32>) -> Lease {
    Lease { user: uid.map(user_name), own: uid == Some(own_uid()), ..Lease::unknown(gpu.clone()) }
}

/// The uid of a name's holder, where the kernel tells it.
type Uid = Option<u32>;

/// All names of ours on this host, each with the uid of its holder.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, Uid>);

impl Names {
    /// Asks the kernel. Before Linux 5.3 it tells no uid; where it does not answer at all, as where the module `unix_diag`
    /// is absent, the names alone are read from `/proc/net/unix`.
    pub(super) fn read() -> Self {
        Self(
            diagnosed()
                .unwrap_or_else(|_| listed(&std::fs::read_to_string("/proc/net/unix").unwrap_or_default())),
        )
    }

    /// The uid of a name's holder, as far as it is known; `None` where no socket has the name.
    pub(super) fn of(&self, name: &str) -> Option<Uid> {
        self.0.get(name).copied()
    }

    /// Who has a part of a GPU. Our own runs beside it do not exclude a run with `--share`.
    pub(super) fn below(&self, name: &str, share: bool) -> Option<Uid> {
        let head = format!("{name}.");
        let mut parts = self.0.iter().filter_map(|(part, uid)| Some((part.strip_prefix(&head)?, *uid)));
        let own_beside = |part: &str, uid| part.contains('.') && uid == Some(own_uid());
        parts.find(|(part, uid)| !(share && own_beside(part, *uid))).map(|(_, uid)| uid)
    }

    /// The uid of the holder of a GPU or a slice, of whichever GPU that is one.
    pub(super) fn holder(&self, dir: &LeaseDir, gpu: &GpuUuid) -> Option<Uid> {
        let head = name(dir, &GpuUuid::from(""), None);
        let slice = format!(".{gpu}");
        let is_slice = |name: &str| name.starts_with(&head) && name.ends_with(&slice);
        let slice = || self.0.iter().find(|(name, _)| is_slice(name)).map(|(_, uid)| *uid);
        self.of(&name(dir, gpu, None)).or_else(slice)
    }
}

/// The kernel's constants: `linux/netlink.h`, `linux/sock_diag.h`, `linux/unix_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST_AND_DUMP: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const SHOW_NAME_AND_UID: u32 = 0x41;
const NAME: u16 = 0;
const UID: u16 = 7;
/// Bytes of a message's header, and of what stands before the attributes.
const HEADER: usize = 16;
const FIXED: usize = HEADER + 16;

/// All unix sockets with names of ours.
fn diagnosed() -> rustix::io::Result<BTreeMap<String, Uid>> {
    let kind = Some(netlink::SOCK_DIAG);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, kind)?;
    // header: length, type, flags, number, sender; question: family 1 (unix), in each state, of each inode
    let mut question = 40_u32.to_ne_bytes().to_vec();
    question.extend([SOCK_DIAG_BY_FAMILY.to_ne_bytes(), REQUEST_AND_DUMP.to_ne_bytes()].concat());
    for word in [1, 0, u32::from_ne_bytes([1, 0, 0, 0]), u32::MAX, 0, SHOW_NAME_AND_UID, 0, 0] {
        question.extend(word.to_ne_bytes());
    }
    send(&socket, &question, SendFlags::empty())?;
    let mut names = BTreeMap::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let (length, _) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        let mut rest = buffer.get(..length).unwrap_or_default();
        while let Some((message, after)) = part(rest, word(rest)) {
            match half(message, 4) {
                Some(DONE) => return Ok(names),
                Some(ERROR) | None => return Err(Errno::NOTSUP),
                Some(_) => names.extend(named(message.get(FIXED..).unwrap_or_default())),
            }
            rest = after;
        }
    }
}

/// The name of ours and the uid in one socket's attributes.
fn named(mut attributes: &[u8]) -> Option<(String, Option<u32>)> {
    let (mut name, mut uid) = (None, None);
    while let Some((attribute, after)) = part(attributes, half(attributes, 0).map(usize::from)) {
        let value = attribute.get(4..).unwrap_or_default();
        match half(attribute, 2) {
            Some(NAME) => name = value.strip_prefix(&[0]).and_then(|name| std::str::from_utf8(name).ok()),
            Some(UID) => uid = word(value).and_then(|uid| u32::try_from(uid).ok()),
            _ => {}
        }
        attributes = after;
    }
    Some((name.filter(|name| name.starts_with(HEAD))?.to_owned(), uid))
}

/// The first `length` bytes, and what follows at the next multiple of four.
fn part(bytes: &[u8], length: Option<usize>) -> Option<(&[u8], &[u8])> {
    let length = length.filter(|length| *length >= 4)?;
    Some((bytes.get(..length)?, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn word(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Reads `/proc/net/unix`, in whose lines the eighth word is the name, `@` for the byte 0.
fn listed(text: &str) -> BTreeMap<String, Uid> {
    let name = |line: &str| line.split_ascii_whitespace().nth(7)?.strip_prefix('@').map(str::to_owned);
    text.lines().filter_map(name).filter(|name| name.starts_with(HEAD)).map(|name| (name, None)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_whose_a_name_is() {
        let home = tempfile::tempdir().unwrap();
        let dir = LeaseDir::open(home.path().canonicalize().unwrap().to_str()).unwrap();
        let (gpu, slice) = (GpuUuid::from("GPU-1"), GpuUuid::from("MIG-1"));
        let (whole, part) = (name(&dir, &gpu, None), name(&dir, &slice, Some(&gpu)));
        assert_eq!(Names::read().of(&whole), None);
        let first = take_name(&dir, &gpu, &part).unwrap().unwrap();
        assert!(take_name(&dir, &gpu, &part).unwrap().is_none(), "no other socket gets it");
        assert!(is(&first, &part) && !is(&first, &whole) && !is(&dir.fd, &part));
        let names = Names::read();
        assert_eq!((names.of(&part), names.of(&whole)), (Some(Some(own_uid())), None));
        assert_eq!(names.below(&whole, true), Some(Some(own_uid())), "a slice is not shared");
        assert_eq!(names.holder(&dir, &slice), Some(Some(own_uid())));
        let without_uid = listed(&std::fs::read_to_string("/proc/net/unix").unwrap());
        assert_eq!(without_uid.get(&part), Some(&None));
        drop(first);
        assert_eq!(Names::read().of(&part), None, "it ends with the socket");
    }

    #[test]
    fn a_run_of_ours_beside_another_is_in_nobodys_way_who_shares() {
        let beside = |uid| Names([("hvtui-gpu-G.RUN.0".to_owned(), uid)].into());
        let own = Some(own_uid());
        assert_eq!(beside(own).below("hvtui-gpu-G", true), None);
        assert_eq!(beside(own).below("hvtui-gpu-G", false), Some(own));
        assert_eq!(beside(Some(4711)).below("hvtui-gpu-G", true), Some(Some(4711)));
        assert_eq!(beside(own).below("hvtui-gpu-GG", false), None);
    }

    #[test]
    fn what_is_no_message_of_the_kernels_says_nothing() {
        for bytes in [&[][..], &[1], &[3, 0, 0, 0], &[200, 0, 0, 0, 1], &[8, 0, 0, 0, b'h', b'v']] {
            assert_eq!(named(bytes), None, "{bytes:?}");
        }
    }
}
