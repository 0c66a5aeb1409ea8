//! Reads private keys, those also whose ECDSA scalar begins with zero bytes.
//!
//! OpenSSH writes the scalar as a number, without leading zeros (RFC 4251, `mpint`): of 256 P-256 keys one is shorter
//! than 32 bytes. `ssh-key` 0.7.0-rc.11 refuses such a key for its length. It is written anew with its zeros, in
//! memory, and read by the library after all.

use base64ct::{Base64, Encoding};
use russh::keys::ssh_key::private::KeypairData;
use russh::keys::{Error, PrivateKey};
use zeroize::Zeroizing;

const MAGIC: &[u8] = b"openssh-key-v1\0";
const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
/// The bytes of a P-256 scalar.
const P256: usize = 32;
/// What an unencrypted private half is padded to, in bytes.
const BLOCK: usize = 8;

/// The private key in the text of a file; of a locked one with its passphrase.
///
/// # Errors
/// No private key, one that is locked, or the wrong passphrase.
pub(super) fn decode(text: &str, passphrase: Option<&str>) -> Result<PrivateKey, Error> {
    russh::keys::decode_secret_key(text, passphrase).or_else(|error| short(text, passphrase).ok_or(error))
}

/// A P-256 key with a short scalar; `None` for everything else.
fn short(text: &str, passphrase: Option<&str>) -> Option<PrivateKey> {
    let base64: String = text.split_once(BEGIN)?.1.split_once(END)?.0.split_whitespace().collect();
    let container = Zeroizing::new(Base64::decode_vec(&base64).ok()?);
    let mut rest = container.strip_prefix(MAGIC)?;
    let cipher = field(&mut rest)?;
    let _kdf = field(&mut rest)?;
    let _options = field(&mut rest)?;
    let one = take(&mut rest, 4)?;
    let public = field(&mut rest)?;
    let section = Zeroizing::new(field(&mut rest)?.to_vec());
    let section = match passphrase {
        None if cipher == b"none" => section,
        Some(passphrase) if cipher != b"none" => unlocked(&container, passphrase, rest)?,
        _ => return None,
    };
    let mut plain = Zeroizing::new(MAGIC.to_vec());
    put(&mut plain, b"none");
    put(&mut plain, b"none");
    put(&mut plain, b"");
    plain.extend(one);
    put(&mut plain, public);
    put(&mut plain, &padded(&section)?);
    PrivateKey::from_bytes(&plain).ok()
}

/// The decrypted private half. `tag` is what follows it in the file: what an AEAD cipher authenticates it with.
fn unlocked(container: &[u8], passphrase: &str, tag: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let key = PrivateKey::from_bytes(container).ok()?;
    let KeypairData::Encrypted(encrypted) = key.key_data() else { return None };
    let (secret, iv) = key.kdf().derive_key_and_iv(key.cipher(), passphrase).ok()?;
    let mut plain = Zeroizing::new(encrypted.clone());
    let tag = <[u8; 16]>::try_from(tag).ok().map(Into::into);
    key.cipher().decrypt(&secret, &iv, &mut plain, tag).ok()?;
    Some(plain)
}

/// The private half with its scalar filled up to its length.
fn padded(section: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut rest = section;
    let checks = take(&mut rest, 8)?;
    let (kind, curve, point) = (field(&mut rest)?, field(&mut rest)?, field(&mut rest)?);
    let scalar = field(&mut rest)?;
    let comment = field(&mut rest)?;
    if checks[..4] != checks[4..] || kind != b"ecdsa-sha2-nistp256" || scalar.len() >= P256 {
        return None;
    }
    let mut whole = Zeroizing::new(checks.to_vec());
    put(&mut whole, kind);
    put(&mut whole, curve);
    put(&mut whole, point);
    let mut full = Zeroizing::new([0; P256]);
    full[P256 - scalar.len()..].copy_from_slice(scalar);
    put(&mut whole, &*full);
    put(&mut whole, comment);
    let missing = whole.len().next_multiple_of(BLOCK) - whole.len();
    whole.extend((1..=BLOCK as u8).take(missing));
    Some(whole)
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    rest.split_off(..bytes)
}

/// A field with its length before it.
fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_be_bytes(take(rest, 4)?.try_into().ok()?);
    take(rest, length.try_into().ok()?)
}

fn put(to: &mut Vec<u8>, field: &[u8]) {
    to.extend((field.len() as u32).to_be_bytes());
    to.extend(field);
}

#[cfg(test)]
mod tests {
    use super::*;
    use russh::keys::HashAlg;

    /// Made by ssh-keygen for this test: its scalar has 31 bytes.
    const SHORT: &str = include_str!("../../../tests/fixtures/ssh/keys/ecdsa_short");
    /// The same, locked with `secret`.
    const LOCKED: &str = include_str!("../../../tests/fixtures/ssh/keys/ecdsa_locked");
    /// Locked with a cipher that authenticates.
    const SEALED: &str = include_str!("../../../tests/fixtures/ssh/keys/ecdsa_sealed");

    fn fingerprint(key: &PrivateKey) -> String {
        key.fingerprint(HashAlg::Sha256).to_string()
    }

    #[test]
    fn a_scalar_with_a_leading_zero_is_read_plain_and_locked() {
        assert!(
            russh::keys::decode_secret_key(SHORT, None).is_err(),
            "the library reads it: this module can go"
        );
        let key = decode(SHORT, None).unwrap();
        assert_eq!(fingerprint(&key), "SHA256:UObbh/mCg+lYShcycS9E7G8z/oz0mqj0g9hUB3Crt+U");
        for locked in [LOCKED, SEALED] {
            assert_eq!(fingerprint(&decode(locked, Some("secret")).unwrap()), fingerprint(&key));
            assert!(decode(locked, Some("wrong")).is_err());
            assert!(matches!(decode(locked, None), Err(Error::KeyIsEncrypted)));
        }
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let lines: Vec<&str> = SHORT.lines().collect();
        let base64: String = lines[1..lines.len() - 1].concat();
        let bytes = Base64::decode_vec(&base64).unwrap();
        for length in 0..bytes.len() {
            let cut = Base64::encode_string(&bytes[..length]);
            assert!(decode(&format!("{BEGIN}\n{cut}\n{END}\n"), None).is_err(), "{length}");
        }
        assert!(decode("", None).is_err() && decode(BEGIN, None).is_err());
    }
}
