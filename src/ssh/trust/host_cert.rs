//! Host certificates: whether an authority that the files name vouches for this key of this host, now. Pure.

use chrono::DateTime;
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Algorithm, Certificate, HashAlg, PublicKey};

use super::host_key::HostKey;
use super::known_hosts::{HostName, KnownHosts};
use super::server::{Allowed, Server};
use super::verdict::{CertificateFault, Place};

/// What the files say about a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::ssh) enum Verdict {
    /// An authority vouches for it.
    Trusted,
    /// Its key or its authority's is revoked by this line.
    Revoked(Place),
    /// No authority of the files signed it: only its key counts.
    NoAuthority,
    /// The authority of this line signed it, but it can't be accepted.
    Bad(Place, CertificateFault),
}

/// The key inside a certificate.
pub(in crate::ssh) fn key_of(certificate: &Certificate) -> HostKey {
    HostKey::new(PublicKey::new(certificate.public_key().clone(), ""))
}

/// Judges a certificate that a host showed. `now` counts seconds since 1970.
pub(in crate::ssh) fn judge(
    known: &KnownHosts,
    server: &Server,
    certificate: &Certificate,
    now: u64,
) -> Verdict {
    let name = &HostName::of(server);
    let authority = HostKey::new(PublicKey::new(certificate.signature_key().clone(), ""));
    let revoked = [&key_of(certificate), &authority].into_iter().find_map(|key| known.revoked(name, key));
    if let Some(place) = revoked {
        return Verdict::Revoked(place);
    }
    match known.authority(name, &authority) {
        None => Verdict::NoAuthority,
        Some(place) => match fault(certificate, &authority, server, now) {
            None => Verdict::Trusted,
            Some(fault) => Verdict::Bad(place, fault),
        },
    }
}

fn fault(
    certificate: &Certificate,
    authority: &HostKey,
    server: &Server,
    now: u64,
) -> Option<CertificateFault> {
    let wanted = server.principal();
    if certificate.cert_type() != CertType::Host {
        return Some(CertificateFault::UserType);
    }
    let names = certificate.valid_principals();
    if !names.iter().any(|name| name.eq_ignore_ascii_case(wanted)) {
        let (wanted, names) = (wanted.to_owned(), names.to_vec());
        return Some(CertificateFault::Principal { wanted, names });
    }
    if now < certificate.valid_after() {
        return Some(CertificateFault::NotYet(moment(certificate.valid_after())));
    }
    if now >= certificate.valid_before() {
        return Some(CertificateFault::Expired(moment(certificate.valid_before())));
    }
    if let Some((option, _)) = certificate.critical_options().iter().next() {
        return Some(CertificateFault::Critical(option.clone()));
    }
    let algorithm = certificate.signature().algorithm();
    if matches!(algorithm, Algorithm::Rsa { hash: None } | Algorithm::Dsa) {
        return Some(CertificateFault::Algorithm(format!("{algorithm} (SHA-1)")));
    }
    let left_out = |allowed: &&Allowed| !allowed.has(algorithm.as_str());
    if let Some(allowed) = server.ca_signatures.as_ref().filter(left_out) {
        return Some(CertificateFault::Algorithm(format!("{algorithm}, which {} leaves out", allowed.said)));
    }
    // Checks the signature once more beside the authority's fingerprint and the time.
    let fingerprint = authority.key.fingerprint(HashAlg::Sha256);
    certificate.validate_at(now, [&fingerprint]).err().map(|_| CertificateFault::Signature)
}

/// Seconds since 1970 as people read them.
pub(in crate::ssh) fn moment(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.map_or_else(|| "the end of time".to_owned(), |time| time.format("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use russh::keys::PrivateKey;
    use russh::keys::ssh_key::certificate::Builder;

    use super::*;
    use crate::domain::ids::HostId;

    const BEGIN: u64 = 1_700_000_000;
    const END: u64 = BEGIN + 3600;

    fn key() -> PrivateKey {
        PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).unwrap()
    }

    /// A certificate of `authority` for the host `gpu-a`, valid from `BEGIN` to `END`.
    fn certificate(authority: &PrivateKey, kind: CertType, change: impl FnOnce(&mut Builder)) -> Certificate {
        let public = key().public_key().key_data().clone();
        let mut builder = Builder::new(vec![7; 16], public, BEGIN, END).unwrap();
        builder.cert_type(kind).unwrap().key_id("id-of-it").unwrap().valid_principal("gpu-a").unwrap();
        change(&mut builder);
        builder.sign(authority).unwrap()
    }

    fn known(line: &str, key: &PrivateKey) -> KnownHosts {
        let mut known = KnownHosts::default();
        let key = key.public_key().to_openssh().unwrap();
        known.add(Path::new("kh"), &format!("{line} {key}"));
        known
    }

    fn server(address: &str) -> Server {
        Server::new(HostId::from("a"), address, 22)
    }

    fn judged(known: &KnownHosts, certificate: &Certificate, now: u64) -> Verdict {
        judge(known, &server("gpu-a"), certificate, now)
    }

    fn fault_of(verdict: Verdict) -> CertificateFault {
        let Verdict::Bad(place, fault) = verdict else { panic!("{verdict:?}") };
        assert_eq!(place.line, 1);
        fault
    }

    #[test]
    fn it_counts_from_its_first_second_to_the_one_before_its_end() {
        let authority = key();
        let known = known("@cert-authority *", &authority);
        let certificate = certificate(&authority, CertType::Host, |_| {});
        assert_eq!(judged(&known, &certificate, BEGIN), Verdict::Trusted);
        assert_eq!(judged(&known, &certificate, END - 1), Verdict::Trusted);
        let early = fault_of(judged(&known, &certificate, BEGIN - 1));
        assert!(matches!(early, CertificateFault::NotYet(_)), "{early}");
        let late = fault_of(judged(&known, &certificate, END));
        assert!(matches!(late, CertificateFault::Expired(_)), "{late}");
    }

    #[test]
    fn only_the_authority_of_a_line_vouches_and_for_its_hosts_alone() {
        let (authority, other) = (key(), key());
        let ours = certificate(&authority, CertType::Host, |_| {});
        assert_eq!(judged(&known("@cert-authority *", &other), &ours, BEGIN), Verdict::NoAuthority);
        assert_eq!(judged(&known("@cert-authority gpu-b", &authority), &ours, BEGIN), Verdict::NoAuthority);
        assert_eq!(judged(&known("gpu-a", &authority), &ours, BEGIN), Verdict::NoAuthority, "a key is none");
        let verdict = judged(&known("@revoked *", &authority), &ours, BEGIN);
        assert!(matches!(verdict, Verdict::Revoked(_)), "{verdict:?}");
    }

    #[test]
    fn what_is_wrong_with_it_is_said() {
        let authority = key();
        let known = known("@cert-authority *", &authority);
        let words = |certificate| fault_of(judged(&known, &certificate, BEGIN)).to_string();
        let user = certificate(&authority, CertType::User, |_| {});
        assert_eq!(words(user), "it is a user's certificate, not a host's");
        let critical = certificate(&authority, CertType::Host, |builder| {
            builder.critical_option("x@y", "1").unwrap();
        });
        assert_eq!(words(critical), "it holds the critical option `x@y`, which is not understood");
        let two = certificate(&authority, CertType::Host, |builder| {
            builder.valid_principal("gpu-c").unwrap();
        });
        let fault = judge(&known, &server("gpu-b"), &two, BEGIN);
        assert_eq!(fault_of(fault).to_string(), "it does not name gpu-b: it names gpu-a, gpu-c");
    }

    #[test]
    fn one_changed_letter_breaks_its_signature() {
        let authority = key();
        let known = known("@cert-authority *", &authority);
        let mut bytes = certificate(&authority, CertType::Host, |_| {}).to_bytes().unwrap();
        let at = bytes.windows(8).position(|letters| letters == b"id-of-it").unwrap();
        bytes[at] = b'I';
        let forged = Certificate::from_bytes(&bytes).unwrap();
        assert_eq!(fault_of(judged(&known, &forged, BEGIN)), CertificateFault::Signature);
    }
}
