//! Who may connect: a mutual HMAC-SHA256 challenge with the run's secret. Pure; bytes in, bytes out.
//!
//! ```text
//! listener → caller   nonce_l                                            32 bytes
//! caller → listener   rank · channel · nonce_c · address · host · MAC(caller, …)
//!                                                               4 + 4 + 32 + 18 + 16 + 32 bytes
//! listener → caller   MAC(listener, …), or zeros: refused                32 bytes
//! ```
//!
//! Each MAC covers a label of its own (so that neither can be thrown back at its maker), what the endpoint is for,
//! the world size, both ranks, both nonces and the address. All fields have fixed lengths, and the listener
//! interprets none of them before the MAC has been checked in constant time. What follows on the connection is
//! not encrypted: who can change packets between the hosts is not kept out.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes of a nonce and of a MAC.
pub(super) const NONCE: usize = 32;
/// Bytes of an address on the wire: IPv6 (or mapped IPv4) and port.
pub(super) const ADDRESS: usize = 18;
const SIGNED: usize = 8 + NONCE + ADDRESS + KEY;
const KEY: usize = 16;
/// Bytes of the caller's message.
pub(super) const HELLO: usize = SIGNED + NONCE;
/// The listener's answer to a caller whose proof is wrong.
pub(super) const REFUSAL: [u8; NONCE] = [0; NONCE];

/// The secret that all ranks of a run share and no other process has: 256 bits.
#[derive(Clone)]
pub struct Secret(hmac::Key);

/// A text that is no secret. It is not repeated here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a run's secret is 64 hexadecimal digits")]
pub struct BadSecret;

impl Secret {
    /// A name that only who has the secret can tell: of the thing `what`.
    pub(super) fn name_of(&self, what: &str) -> String {
        let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
        self.key_of(what).iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }

    /// Sixteen bytes that only who has the secret can tell: of the thing `what`.
    pub(super) fn key_of(&self, what: &str) -> HostKey {
        let tag = hmac::sign(&self.0, format!("hvtui collective 3 name {what}").as_bytes());
        let mut key = HostKey::default();
        key.copy_from_slice(&tag.as_ref()[..16]);
        key
    }

    /// From 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, BadSecret> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(BadSecret);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let value = |digit: u8| char::from(digit).to_digit(16).ok_or(BadSecret);
            *byte = (value(pair[0])? * 16 + value(pair[1])?) as u8;
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    fn mac(&self, label: &[u8], endpoint: Endpoint, nonce: &[u8; NONCE], signed: &[u8]) -> hmac::Tag {
        hmac::sign(&self.0, &message(label, endpoint, nonce, signed))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What a listening port is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Rank 0's, where all meet.
    Rendezvous,
    /// A connection that carries values from one rank to another.
    Data,
    /// The socket on which a host's ranks hand each other their memory.
    Memory,
}

/// A listening port: its purpose, whose it is, and the size of the world it belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoint {
    pub(super) purpose: Purpose,
    pub(super) world: u32,
    pub(super) owner: u32,
}

/// Equal for two ranks that may be on one host; what it is made of is the caller's affair.
pub(super) type HostKey = [u8; 16];

/// A caller whose proof was right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) rank: u32,
    /// Which of its connections to the same owner this is.
    pub(super) channel: u32,
    /// Where the caller itself listens.
    pub(super) address: SocketAddr,
    /// Which host it seems to be on.
    pub(super) host: HostKey,
}

fn message(label: &[u8], endpoint: Endpoint, nonce: &[u8; NONCE], signed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(label.len() + 9 + NONCE + signed.len());
    bytes.extend_from_slice(label);
    bytes.push(match endpoint.purpose {
        Purpose::Rendezvous => 1,
        Purpose::Data => 2,
        Purpose::Memory => 3,
    });
    bytes.extend_from_slice(&endpoint.world.to_le_bytes());
    bytes.extend_from_slice(&endpoint.owner.to_le_bytes());
    bytes.extend_from_slice(nonce);
    bytes.extend_from_slice(signed);
    bytes
}

const CALLER: &[u8] = b"hvtui collective 3 caller  ";
const LISTENER: &[u8] = b"hvtui collective 3 listener";

/// A fresh nonce; `None` when the system has no randomness to give.
pub(super) fn nonce() -> Option<[u8; NONCE]> {
    let mut bytes = [0; NONCE];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes)
}

/// The caller's message to `endpoint`, whose owner has sent `challenge`.
pub(super) fn hello(
    secret: &Secret,
    endpoint: Endpoint,
    caller: Caller,
    challenge: &[u8; NONCE],
    own: &[u8; NONCE],
) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    bytes[..4].copy_from_slice(&caller.rank.to_le_bytes());
    bytes[4..8].copy_from_slice(&caller.channel.to_le_bytes());
    bytes[8..8 + NONCE].copy_from_slice(own);
    bytes[8 + NONCE..SIGNED - KEY].copy_from_slice(&encode_address(caller.address));
    bytes[SIGNED - KEY..SIGNED].copy_from_slice(&caller.host);
    let tag = secret.mac(CALLER, endpoint, challenge, &bytes[..SIGNED]);
    bytes[SIGNED..].copy_from_slice(tag.as_ref());
    bytes
}

/// The caller behind `hello`, if its proof is right for `endpoint` and `challenge`.
pub(super) fn check_hello(
    secret: &Secret,
    endpoint: Endpoint,
    challenge: &[u8; NONCE],
    hello: &[u8; HELLO],
) -> Option<Caller> {
    let (signed, tag) = hello.split_at(SIGNED);
    hmac::verify(&secret.0, &message(CALLER, endpoint, challenge, signed), tag).ok()?;
    let rank = u32::from_le_bytes(signed[..4].try_into().ok()?);
    let channel = u32::from_le_bytes(signed[4..8].try_into().ok()?);
    let address = decode_address(signed[8 + NONCE..SIGNED - KEY].try_into().ok()?);
    let host = signed[SIGNED - KEY..].try_into().ok()?;
    (rank < endpoint.world && rank != endpoint.owner).then_some(Caller { rank, channel, address, host })
}

/// The listener's proof to the caller that sent `hello`.
pub(super) fn answer(
    secret: &Secret,
    endpoint: Endpoint,
    challenge: &[u8; NONCE],
    hello: &[u8; HELLO],
) -> [u8; NONCE] {
    let mut bytes = [0; NONCE];
    bytes.copy_from_slice(secret.mac(LISTENER, endpoint, challenge, hello).as_ref());
    bytes
}

/// Whether `answer` is the right listener's.
pub(super) fn check_answer(
    secret: &Secret,
    endpoint: Endpoint,
    challenge: &[u8; NONCE],
    hello: &[u8; HELLO],
    answer: &[u8; NONCE],
) -> bool {
    hmac::verify(&secret.0, &message(LISTENER, endpoint, challenge, hello), answer).is_ok()
}

/// An address in [`ADDRESS`] bytes.
pub(super) fn encode_address(address: SocketAddr) -> [u8; ADDRESS] {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut bytes = [0; ADDRESS];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

/// The address in [`ADDRESS`] bytes.
pub(super) fn decode_address(bytes: &[u8; ADDRESS]) -> SocketAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[..16]);
    SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), u16::from_be_bytes([bytes[16], bytes[17]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(digit: &str) -> Secret {
        Secret::from_hex(&digit.repeat(64)).unwrap()
    }

    const ENDPOINT: Endpoint = Endpoint { purpose: Purpose::Data, world: 4, owner: 2 };

    fn caller() -> Caller {
        Caller { rank: 1, channel: 7, address: "10.1.2.3:4567".parse().unwrap(), host: [3; 16] }
    }

    #[test]
    fn each_side_proves_itself_to_the_other() {
        let (challenge, own) = (nonce().unwrap(), nonce().unwrap());
        assert_ne!(challenge, own);
        let hello = hello(&secret("a"), ENDPOINT, caller(), &challenge, &own);
        assert_eq!(check_hello(&secret("a"), ENDPOINT, &challenge, &hello), Some(caller()));
        let answer = answer(&secret("a"), ENDPOINT, &challenge, &hello);
        assert!(check_answer(&secret("a"), ENDPOINT, &challenge, &hello, &answer));
        assert!(!check_answer(&secret("a"), ENDPOINT, &challenge, &hello, &REFUSAL));
        // The caller's own proof, thrown back, is none.
        let thrown_back: [u8; NONCE] = hello[SIGNED..].try_into().unwrap();
        assert!(!check_answer(&secret("a"), ENDPOINT, &challenge, &hello, &thrown_back));
    }

    #[test]
    fn a_proof_is_good_for_one_endpoint_one_challenge_one_secret_and_one_rank() {
        let (challenge, own) = (nonce().unwrap(), nonce().unwrap());
        let good = hello(&secret("a"), ENDPOINT, caller(), &challenge, &own);
        let refused = |endpoint, challenge: &[u8; NONCE], hello: &[u8; HELLO], secret: &Secret| {
            check_hello(secret, endpoint, challenge, hello).is_none()
        };
        assert!(refused(ENDPOINT, &challenge, &good, &secret("b")));
        assert!(refused(ENDPOINT, &own, &good, &secret("a")));
        assert!(refused(Endpoint { owner: 3, ..ENDPOINT }, &challenge, &good, &secret("a")));
        assert!(refused(Endpoint { world: 5, ..ENDPOINT }, &challenge, &good, &secret("a")));
        assert!(refused(
            Endpoint { purpose: Purpose::Rendezvous, ..ENDPOINT },
            &challenge,
            &good,
            &secret("a")
        ));
        for at in 0..HELLO {
            let mut bent = good;
            bent[at] ^= 1;
            assert!(refused(ENDPOINT, &challenge, &bent, &secret("a")), "byte {at}");
        }
        let outside = hello(&secret("a"), ENDPOINT, Caller { rank: 4, ..caller() }, &challenge, &own);
        assert!(refused(ENDPOINT, &challenge, &outside, &secret("a")));
    }

    #[test]
    fn secrets_are_hex_and_never_printed() {
        assert!(Secret::from_hex("abc").is_err());
        assert!(Secret::from_hex(&"g".repeat(64)).is_err());
        assert!(Secret::from_hex(&"é".repeat(32)).is_err());
        assert_eq!(format!("{:?}", secret("a")), "Secret(…)");
    }

    #[test]
    fn addresses_of_both_families_survive() {
        for text in ["127.0.0.1:1", "[2001:db8::7]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(decode_address(&encode_address(address)), address);
        }
    }
}
