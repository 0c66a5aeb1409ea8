//! Getting in as a person: passphrases, certificates, passwords and keyboard-interactive against real sshd, and what is
//! done about an unknown host key.
//!
//! The servers with passwords are Debian's sshd in a mount namespace with an `/etc/shadow` of its own; several rounds of
//! questions, which PAM's plain modules do not ask, come from a server made of russh's server half.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::common::cluster::skip;
use crate::common::echo::user;
use crate::common::in_time::OutputInTime;
use crate::common::person::{Person, text};
use crate::common::processes::until;
use crate::common::sshd;
use crate::common::sshd::{Sshd, children, keygen};
use hvtui::domain::question::{Answer, HostKeyPolicy, Question, Subject};
use hvtui::ssh::{
    AgentBinary, AgentError, AgentStream, ErrorKind, HostKey, Prompter, SshError, Target, TrustError,
    open_agent,
};

const AGENT: &str = "#!/bin/sh\nprintf '\\001HVT1 %s\\n' \"$4\"\nexec cat\n";

/// A target that knows the server's key and has no user key.
fn target(sshd: &Sshd, prompter: &Prompter) -> Target {
    let known_hosts = sshd.path("known_hosts");
    let line = format!("[127.0.0.1]:{} {}\n", sshd.port, sshd.host_key("ed25519"));
    std::fs::write(&known_hosts, line).unwrap();
    Target {
        identities: vec![sshd.path("no-such-key")],
        known_hosts: vec![known_hosts],
        connect_timeout: Duration::from_secs(20),
        auth_agent: false,
        prompter: prompter.clone(),
        ..Target::new("gpu-a".into(), "127.0.0.1", sshd.port, user())
    }
}

async fn open(sshd: &Sshd, target: &Target) -> Result<AgentStream, AgentError> {
    let path = sshd.path("agent");
    std::fs::write(&path, AGENT).unwrap();
    open_agent(target, &AgentBinary::from_path(&path).unwrap(), |_| ()).await
}

async fn refused(sshd: &Sshd, target: &Target) -> AgentError {
    open(sshd, target).await.map(|_| ()).unwrap_err()
}

fn lock(file: &Path, passphrase: &str) {
    let mut lock = Command::new("ssh-keygen");
    lock.args(["-q", "-p", "-P", "", "-N", passphrase, "-f"]).arg(file);
    assert!(lock.output_in_time().unwrap().status.success());
}

/// Whether sshd has told a client that it would take a key, and waits for the proof.
fn wants_signature(log: &Path) -> bool {
    std::fs::read_to_string(log).unwrap().contains("Postponed publickey")
}

/// Signs a user's key: `file-cert.pub`. `validity` as ssh-keygen takes it.
fn sign(ca: &Path, file: &Path, validity: &str) {
    let mut sign = Command::new("ssh-keygen");
    sign.args(["-q", "-s"]).arg(ca).args(["-I", "test", "-n", &user(), "-V", validity]);
    assert!(sign.arg(file.with_extension("pub")).output_in_time().unwrap().status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passphrase_is_asked_once_for_all_hosts() {
    let (Some(one), Some(two)) = (Sshd::start(&["ed25519"], ""), Sshd::start(&["ed25519"], "")) else {
        return;
    };
    lock(&one.path("user"), "right");
    std::fs::copy(one.path("user.pub"), two.path("authorized")).unwrap();
    let logs = [one.path("log"), two.path("log")];
    let (prompter, person) = Person::answering(move |_, before| {
        // a slow person: both hosts have said that they take the key
        until("both hosts to wait", || logs.iter().all(|log| wants_signature(log)));
        text(if before == 0 { "wrong" } else { "right" })
    });
    let to = |sshd: &Sshd| Target { identities: vec![one.path("user")], ..target(sshd, &prompter) };
    let (first, second) = (to(&one), to(&two));
    let (a, b) = tokio::join!(open(&one, &first), open(&two, &second));
    a.unwrap();
    b.unwrap();
    open(&one, &first).await.unwrap();
    let questions = person.asked();
    assert_eq!(person.subjects(), ["passphrase", "passphrase"], "a wrong one, a right one, and never again");
    assert_eq!(questions[1].note.as_deref(), Some("that passphrase does not open the key"));
    let Subject::Passphrase { key, fingerprint } = &questions[0].subject else { panic!("{questions:?}") };
    assert_eq!(*key, one.path("user").display().to_string());
    let public = std::fs::read_to_string(one.path("user.pub")).unwrap();
    assert_eq!(*fingerprint, HostKey::from_openssh(&public).map(|key| key.fingerprint()));
    assert!(!format!("{first:?}").contains("right"), "a secret shows");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_passphrase_is_asked_again_later() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    lock(&sshd.path("user"), "right");
    let (prompter, person) = Person::answering(|_, before| if before == 0 { None } else { text("right") });
    let locked = Target { identities: vec![sshd.path("user")], ..target(&sshd, &prompter) };
    let error = refused(&sshd, &locked).await;
    assert_eq!((error.kind(), error.is_refusal()), (ErrorKind::Authentication, true));
    assert!(error.to_string().contains("its passphrase was not given"), "{error}");
    assert_eq!(person.asked().len(), 1);
    open(&sshd, &locked).await.unwrap();
    assert_eq!(person.asked().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_key_that_the_host_does_not_want_is_not_asked_for() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    keygen(&sshd.path("stranger"), "ed25519", "secret");
    let (prompter, person) = Person::answering(|_, _| text("secret"));
    let identities = vec![sshd.path("stranger"), sshd.path("user")];
    open(&sshd, &Target { identities, ..target(&sshd, &prompter) }).await.unwrap();
    assert!(person.asked().is_empty());

    // where no user can be asked, a key that opened would help only where the host takes it
    let unasked = Prompter::unavailable("no terminal");
    let alone = |names: &[&str]| Target {
        identities: names.iter().map(|name| sshd.path(name)).collect(),
        ..target(&sshd, &unasked)
    };
    let text = refused(&sshd, &alone(&["stranger"])).await.to_string();
    let offered = format!("offered {}", sshd.path("stranger").display());
    assert!(text.contains(&offered) && !text.contains("ssh-add"), "{text}");
    open(&sshd, &alone(&["stranger", "user"])).await.unwrap();

    lock(&sshd.path("user"), "secret");
    let text = refused(&sshd, &alone(&["user"])).await.to_string();
    let remedy = format!("no terminal: run ssh-add {}", sshd.path("user").display());
    assert!(text.contains(&remedy), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn user_certificates_are_offered_and_their_end_is_told() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    keygen(&sshd.path("ca"), "ed25519", "");
    let trusted = format!("TrustedUserCAKeys {}", sshd.path("ca.pub").display());
    let Some(sshd) = Sshd::start(&["ed25519"], &trusted).map(|trusting| (trusting, sshd)) else { return };
    let (sshd, ca) = (sshd.0, sshd.1.path("ca"));
    let prompter = Prompter::unavailable("no terminal");
    let to = |identities: Vec<PathBuf>| Target { identities, ..target(&sshd, &prompter) };
    for kind in ["ed25519", "rsa", "ecdsa"] {
        let file = sshd.path(&format!("certified-{kind}"));
        keygen(&file, kind, "");
        assert_eq!(refused(&sshd, &to(vec![file.clone()])).await.kind(), ErrorKind::Authentication);
        sign(&ca, &file, "+1h");
        open(&sshd, &to(vec![file.clone()])).await.unwrap();
        // named elsewhere, as by CertificateFile
        let beside = PathBuf::from(format!("{}-cert.pub", file.display()));
        let elsewhere = sshd.path("elsewhere.pub");
        std::fs::rename(&beside, &elsewhere).unwrap();
        open(&sshd, &Target { certificates: vec![elsewhere], ..to(vec![file]) }).await.unwrap();
    }

    let old = sshd.path("old");
    keygen(&old, "ed25519", "");
    sign(&ca, &old, "20200101:20200201");
    let error = refused(&sshd, &to(vec![old.clone()])).await;
    let AgentError::Ssh(SshError::Authentication { attempts, .. }) = &error else { panic!("{error}") };
    assert!(attempts.offered[0].contains("expired 2020-0"), "{error}");

    // a certified key with a passphrase: asked for once, used for certificate alone
    let locked = sshd.path("locked");
    keygen(&locked, "ed25519", "secret");
    sign(&ca, &locked, "+1h");
    let (prompter, person) = Person::answering(|_, _| text("secret"));
    open(&sshd, &Target { identities: vec![locked], ..target(&sshd, &prompter) }).await.unwrap();
    assert_eq!(person.subjects(), ["passphrase"]);
}

/// One P-256 key of 256: OpenSSH leaves the leading zeros of its scalar out.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_scalar_is_short_lets_in_also_where_it_is_locked() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ssh/keys");
    let (prompter, _) = Person::answering(|_, _| text("secret"));
    for name in ["ecdsa_short", "ecdsa_locked", "ecdsa_sealed"] {
        let file = sshd.path(name);
        std::fs::copy(keys.join(name), &file).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let public = Command::new("ssh-keygen")
            .args(["-y", "-P", "secret", "-f"])
            .arg(&file)
            .output_in_time()
            .unwrap();
        std::fs::write(sshd.path("authorized"), public.stdout).unwrap();
        open(&sshd, &Target { identities: vec![file], ..target(&sshd, &prompter) }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_asked_three_times_at_most() {
    let more = "PasswordAuthentication yes";
    let Some(sshd) = Sshd::start_with_password("open sesame", &["ed25519"], more) else { return };
    let answers = |given: &'static [&'static str]| Person::answering(move |_, before| text(given[before]));
    let (prompter, person) = answers(&["wrong", "open sesame"]);
    open(&sshd, &target(&sshd, &prompter)).await.unwrap();
    assert_eq!(person.subjects(), ["password", "password"]);
    let questions = person.asked();
    assert_eq!(questions[0].to, format!("{}@127.0.0.1:{}", user(), sshd.port));
    assert_eq!(questions[1].note.as_deref(), Some("that was not accepted; try 2 of 3"));

    let (prompter, person) = answers(&["a", "b", "c", "open sesame"]);
    let error = refused(&sshd, &target(&sshd, &prompter)).await;
    assert_eq!((error.kind(), error.is_refusal()), (ErrorKind::Authentication, true));
    assert!(error.to_string().contains("password: 3 answers were wrong"), "{error}");
    assert_eq!(person.asked().len(), 3);

    let (prompter, person) = Person::answering(|_, _| None);
    let error = refused(&sshd, &target(&sshd, &prompter)).await;
    assert!(error.to_string().contains("password was not answered"), "{error}");
    assert_eq!(person.asked().len(), 1);
    let error = refused(&sshd, &target(&sshd, &Prompter::unavailable("no terminal"))).await;
    assert!(error.to_string().contains("password needs an answer, and no terminal"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn vector_09_nothing_is_asked_before_the_host_key_is_accepted() {
    let more = "PasswordAuthentication yes";
    let Some(sshd) = Sshd::start_with_password("open sesame", &["ed25519"], more) else { return };
    let (prompter, person) = Person::answering(|_, _| text("open sesame"));
    keygen(&sshd.path("other"), "ed25519", "");
    let changed = target(&sshd, &prompter);
    let other = std::fs::read_to_string(sshd.path("other.pub")).unwrap();
    std::fs::write(sshd.path("known_hosts"), format!("[127.0.0.1]:{} {other}", sshd.port)).unwrap();
    assert!(matches!(
        refused(&sshd, &changed).await,
        AgentError::Ssh(SshError::HostKey(TrustError::ChangedKey { .. }))
    ));
    assert!(person.asked().is_empty());
    sshd.left().await;
    assert!(!sshd.log().contains("userauth-request"), "credentials were sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn keyboard_interactive_goes_through_pam() {
    let more = "UsePAM yes\nKbdInteractiveAuthentication yes";
    let Some(sshd) = Sshd::start_with_password("open sesame", &["ed25519"], more) else { return };
    let (prompter, person) =
        Person::answering(|_, before| text(if before == 0 { "wrong" } else { "open sesame" }));
    open(&sshd, &target(&sshd, &prompter)).await.unwrap();
    assert_eq!(person.subjects(), ["prompt", "prompt"]);
    let Subject::Prompt { prompt, echo, .. } = &person.asked()[0].subject else { panic!("no prompt") };
    assert!(prompt.contains("Password") && !echo, "{prompt}");
}

/// sshd asks for the new password within the dialog of the login.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_password_is_changed_in_the_hosts_own_dialog() {
    let more = "UsePAM yes\nKbdInteractiveAuthentication yes";
    let Some(sshd) = Sshd::start_with_expired_password("open sesame", &["ed25519"], more) else { return };
    let (prompter, person) = Person::answering(|question, _| {
        let is_new = question.prompt().to_lowercase().contains("new");
        text(if is_new { "shut, sesame 7!" } else { "open sesame" })
    });
    open(&sshd, &target(&sshd, &prompter)).await.unwrap();
    let prompts: Vec<String> = person.asked().iter().map(Question::prompt).collect();
    let last: Vec<&str> = prompts.iter().rev().take(2).rev().map(String::as_str).collect();
    assert_eq!(last, ["New password:", "Retype new password:"], "{prompts:?}");
    let words: Vec<String> = person.asked().iter().flat_map(Question::lines).collect();
    assert!(words.iter().any(|line| line.contains("change your password")), "{words:?}");

    let (prompter, person) = Person::answering(|_, _| text("shut, sesame 7!"));
    open(&sshd, &target(&sshd, &prompter)).await.unwrap();
    assert_eq!(person.subjects(), ["prompt"], "the new one, and nothing more");
}

/// A key opens the host, which then runs nothing; without PAM it does not look at the password's age for a key.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_password_is_told_where_it_cannot_be_changed() {
    for (more, method, is_in) in [
        ("UsePAM yes", "key", false),
        ("UsePAM no\nPasswordAuthentication yes", "password", false),
        ("UsePAM no", "key", true),
    ] {
        let Some(sshd) = Sshd::start_with_expired_password("open sesame", &["ed25519"], more) else { return };
        let (prompter, _person) = Person::answering(|_, _| text("open sesame"));
        let by_password = target(&sshd, &prompter);
        let by_key = Target { identities: vec![sshd.path("user")], ..by_password.clone() };
        let opened = open(&sshd, if method == "key" { &by_key } else { &by_password }).await;
        if is_in {
            opened.unwrap();
            continue;
        }
        let error = opened.map(|_| ()).unwrap_err();
        assert_eq!((error.kind(), error.is_refusal()), (ErrorKind::Authentication, true), "{more}: {error}");
        for part in ["gpu-a: the account's password has expired", "no TTY", "ssh -t"] {
            assert!(error.to_string().contains(part), "{more}: {part} is not in: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_and_a_password_are_both_given_where_both_are_wanted() {
    for methods in ["publickey,password", "password,publickey"] {
        let more = format!("PasswordAuthentication yes\nAuthenticationMethods {methods}");
        let Some(sshd) = Sshd::start_with_password("open sesame", &["ed25519"], &more) else { return };
        let (prompter, person) = Person::answering(|_, _| text("open sesame"));
        let both = Target { identities: vec![sshd.path("user")], ..target(&sshd, &prompter) };
        open(&sshd, &both).await.unwrap_or_else(|error| panic!("{methods}: {error}"));
        assert_eq!(person.subjects(), ["password"], "{methods}");
        let alone = Target { prompter: Prompter::unavailable("no terminal"), ..both };
        let error = refused(&sshd, &alone).await.to_string();
        assert!(error.contains("password needs an answer"), "{methods}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_open_for_too_long_for_the_host_is_asked_anew() {
    let more = "PasswordAuthentication yes\nLoginGraceTime 10";
    let Some(sshd) = Sshd::start_with_password("open sesame", &["ed25519"], more) else { return };
    let server = sshd.pid();
    let (prompter, person) = Person::answering(move |_, before| {
        // away until the host has hung up; not every sshd logs that
        until("the host to hang up", || before > 0 || children(server).is_empty());
        text("open sesame")
    });
    // far less than the person takes
    let hasty = Target { connect_timeout: Duration::from_secs(20), ..target(&sshd, &prompter) };
    let stream = open(&sshd, &hasty).await;
    let notes: Vec<_> = person.asked().iter().map(|question| question.note.clone()).collect();
    assert!(
        notes.len() >= 2 && notes[1].as_ref().is_some_and(|note| note.contains("LoginGraceTime")),
        "{notes:?}"
    );
    stream.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_host_key_is_asked_about_taken_or_refused() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let line = format!("[127.0.0.1]:{} {}\n", sshd.port, sshd.host_key("ed25519"));
    let file = sshd.path("new/known_hosts");
    let written = || std::fs::read_to_string(&file).unwrap_or_default();
    let to = |policy, prompter: &Prompter| Target {
        identities: vec![sshd.path("user")],
        known_hosts: vec![file.clone()],
        host_key_policy: policy,
        ..target(&sshd, prompter)
    };
    let (prompter, person) = Person::answering(|_, _| Some(Answer::No));
    for policy in [HostKeyPolicy::Strict, HostKeyPolicy::Ask] {
        let error = refused(&sshd, &to(policy, &prompter)).await;
        assert!(
            matches!(error, AgentError::Ssh(SshError::HostKey(TrustError::UnknownKey { .. }))),
            "{error}"
        );
        assert!(error.to_string().contains("hvtui hosts trust gpu-a"), "{error}");
    }
    assert_eq!(person.subjects(), ["host key"], "only where the policy asks");
    let error = refused(&sshd, &to(HostKeyPolicy::Ask, &Prompter::unavailable("no terminal"))).await;
    assert_eq!((error.kind(), written()), (ErrorKind::HostKey, String::new()));
    sshd.left().await;
    assert!(!sshd.log().contains("userauth-request"), "credentials were sent");

    // two hosts with one key: one question
    let (prompter, person) = Person::answering(|_, _| Some(Answer::Yes));
    let asking = to(HostKeyPolicy::Ask, &prompter);
    let (a, b) = tokio::join!(open(&sshd, &asking), open(&sshd, &asking));
    a.unwrap();
    b.unwrap();
    assert_eq!((person.subjects(), written()), (vec!["host key"], line.clone()));
    let shown = HostKey::from_openssh(&sshd.host_key("ed25519")).unwrap().fingerprint();
    let questions = person.asked();
    assert!(
        matches!(&questions[0].subject, Subject::HostKey { fingerprint, .. } if *fingerprint == shown),
        "{questions:?}"
    );

    std::fs::remove_file(&file).unwrap();
    let (prompter, person) = Person::answering(|_, _| None);
    open(&sshd, &to(HostKeyPolicy::AcceptNew, &prompter)).await.unwrap();
    assert_eq!((person.asked().len(), written()), (0, line));
    assert!(person.told()[0].contains("is trusted from now on"), "{:?}", person.told());

    // a changed key is refused whatever the policy is, and no user is asked
    keygen(&sshd.path("other"), "ed25519", "");
    let other = std::fs::read_to_string(sshd.path("other.pub")).unwrap();
    std::fs::write(&file, format!("[127.0.0.1]:{} {other}", sshd.port)).unwrap();
    for policy in [HostKeyPolicy::Ask, HostKeyPolicy::AcceptNew] {
        let error = refused(&sshd, &to(policy, &prompter)).await;
        assert!(
            matches!(error, AgentError::Ssh(SshError::HostKey(TrustError::ChangedKey { .. }))),
            "{error}"
        );
    }
    assert!(person.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_no_file_can_take_is_trusted_for_the_session() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let (real, link) = (sshd.path("real"), sshd.path("link"));
    std::fs::write(&real, "").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let (prompter, person) = Person::answering(|_, _| Some(Answer::Yes));
    let asking =
        Target { identities: vec![sshd.path("user")], known_hosts: vec![link], ..target(&sshd, &prompter) };
    for _ in 0..2 {
        open(&sshd, &asking).await.unwrap();
    }
    assert_eq!((person.asked().len(), std::fs::read_to_string(&real).unwrap()), (1, String::new()));
    assert!(person.told()[0].contains("is trusted until hvtui ends"), "{:?}", person.told());
    let (prompter, person) = Person::answering(|_, _| None);
    assert!(matches!(
        refused(&sshd, &Target { prompter, ..asking }).await,
        AgentError::Ssh(SshError::HostKey(TrustError::UnknownKey { .. }))
    ));
    assert_eq!(person.asked().len(), 1, "another session knows nothing of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_known_by_another_type_of_key_is_asked_about_and_never_taken_unseen() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    keygen(&sshd.path("other"), "ecdsa", "");
    let other = std::fs::read_to_string(sshd.path("other.pub")).unwrap();
    let (prompter, person) = Person::answering(|_, _| Some(Answer::Yes));
    let asking = Target { identities: vec![sshd.path("user")], ..target(&sshd, &prompter) };
    let forget = || {
        std::fs::write(sshd.path("known_hosts"), format!("[127.0.0.1]:{} {other}", sshd.port)).unwrap();
    };
    forget();
    let taking = Target { host_key_policy: HostKeyPolicy::AcceptNew, ..asking.clone() };
    assert!(matches!(
        refused(&sshd, &taking).await,
        AgentError::Ssh(SshError::HostKey(TrustError::OtherKeyType { .. }))
    ));
    open(&sshd, &asking).await.unwrap();
    let questions = person.asked();
    assert!(
        matches!(&questions[0].subject, Subject::HostKey { other, .. } if other[0].contains("ecdsa")),
        "{questions:?}"
    );
}

/// sshd drops every connection from the sixteenth that is not yet in. It learns late who is.
#[tokio::test(flavor = "multi_thread")]
async fn many_links_to_one_server_take_turns() {
    let Some(sshd) = Sshd::start(&["ed25519"], "MaxStartups 16:100:16") else { return };
    let prompter = Prompter::unavailable("no terminal");
    let good = Target { identities: vec![sshd.path("user")], ..target(&sshd, &prompter) };
    open(&sshd, &good).await.unwrap();
    let binary = AgentBinary::from_path(&sshd.path("agent")).unwrap();
    let links: Vec<_> = (0..64)
        .map(|_| {
            let (good, binary) = (good.clone(), binary.clone());
            tokio::spawn(async move { open_agent(&good, &binary, |_| ()).await.map(|_| ()) })
        })
        .collect();
    for link in links {
        link.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_stands_for_the_host_in_known_hosts() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let prompter = Prompter::unavailable("no terminal");
    let known = Target { identities: vec![sshd.path("user")], ..target(&sshd, &prompter) };
    std::fs::write(sshd.path("known_hosts"), format!("gpus {}\n", sshd.host_key("ed25519"))).unwrap();
    assert!(matches!(
        refused(&sshd, &known).await,
        AgentError::Ssh(SshError::HostKey(TrustError::UnknownKey { .. }))
    ));
    open(&sshd, &Target { host_key_alias: Some("GPUs".into()), ..known }).await.unwrap();
}

/// A server whose keyboard-interactive asks twice, with two prompts the second time.
mod rounds {
    use super::*;
    use russh::keys::{Algorithm, PrivateKey};
    use russh::server::{Auth, Config, Handler, Response, run_stream};
    use std::borrow::Cow;

    struct Server {
        round: usize,
        /// Rounds before the end; without end where it is high.
        rounds: usize,
    }

    impl Handler for Server {
        type Error = russh::Error;

        async fn auth_keyboard_interactive<'a>(
            &'a mut self,
            _user: &str,
            _submethods: &str,
            response: Option<Response<'a>>,
        ) -> Result<Auth, russh::Error> {
            let given: Vec<Vec<u8>> =
                response.map(|all| all.map(|one| one.to_vec()).collect()).unwrap_or_default();
            self.round += 1;
            if self.round > self.rounds {
                let right = given == [b"red".to_vec(), b"blue".to_vec()];
                return Ok(if right { Auth::Accept } else { Auth::reject() });
            }
            let prompts: Vec<(Cow<'static, str>, bool)> = match self.round {
                1 => vec![("Code: ".into(), true)],
                _ => vec![("First colour: ".into(), false), ("Second colour: ".into(), false)],
            };
            let instructions = format!("round {}\u{1b}[2J", self.round).into();
            Ok(Auth::Partial { name: "Gate".into(), instructions, prompts: prompts.into() })
        }
    }

    async fn start(rounds: usize, prompter: &Prompter) -> Target {
        let key = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).unwrap();
        let public = HostKey::from_openssh(&key.public_key().to_openssh().unwrap()).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(Config { keys: vec![key], ..Config::default() });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let config = config.clone();
                tokio::spawn(async move {
                    if let Ok(session) = run_stream(config, stream, Server { round: 0, rounds }).await {
                        let _ = session.await;
                    }
                });
            }
        });
        Target {
            identities: vec!["/no/such/key".into()],
            fingerprint: Some(public.fingerprint()),
            connect_timeout: Duration::from_secs(20),
            auth_agent: false,
            prompter: prompter.clone(),
            ..Target::new("gpu-a".into(), "127.0.0.1", port, "li")
        }
    }

    async fn error(target: &Target) -> AgentError {
        let binary = AgentBinary::of_current_exe().unwrap();
        open_agent(target, &binary, |_| ()).await.map(|_| ()).unwrap_err()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn several_rounds_are_answered_one_prompt_at_a_time() {
        let (prompter, person) = Person::answering(|_, before| text(["7", "red", "blue"][before]));
        // it lets us in, and then refuses a session: that is how far this server goes
        let error = error(&start(2, &prompter).await).await;
        assert_ne!(error.kind(), ErrorKind::Authentication, "{error}");
        let questions = person.asked();
        let prompts: Vec<String> = questions.iter().map(Question::prompt).collect();
        assert_eq!(prompts, ["Code:", "First colour:", "Second colour:"]);
        assert_eq!(questions.iter().map(Question::echo).collect::<Vec<_>>(), [true, false, false]);
        assert!(questions[1].lines().contains(&"round 2␛[2J".to_owned()), "{:?}", questions[1].lines());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_host_that_asks_without_end_is_left() {
        let (prompter, person) = Person::answering(|_, _| text("x"));
        let error = error(&start(usize::MAX, &prompter).await).await;
        assert!(error.to_string().contains("asks without end"), "{error}");
        assert!(person.asked().len() < 50);
    }
}

/// The agent's socket is taken from the environment, which only a process of its own can change safely: this test
/// runs itself again.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_the_ssh_agent_and_identities_only() {
    if let Some(folder) = std::env::var_os("HVTUI_TEST_AGENT_FOLDER") {
        let folder = PathBuf::from(folder);
        let port = std::fs::read_to_string(folder.join("port")).unwrap().parse().unwrap();
        let binary = AgentBinary::from_path(&folder.join("agent")).unwrap();
        let target = Target {
            known_hosts: vec![folder.join("known_hosts")],
            connect_timeout: Duration::from_secs(20),
            auth_agent: true,
            ..Target::new("gpu-a".into(), "127.0.0.1", port, user())
        };
        open_agent(&target, &binary, |_| ()).await.unwrap();
        let only = Target { identities: vec![folder.join("other")], identities_only: true, ..target };
        let error = open_agent(&only, &binary, |_| ()).await.map(|_| ()).unwrap_err();
        let AgentError::Ssh(SshError::Authentication { attempts, .. }) = &error else { panic!("{error}") };
        assert_eq!(attempts.offered, [folder.join("other").display().to_string()]);
        return;
    }
    let Some(first) = Sshd::start(&["ed25519"], "") else { return };
    if sshd::program("ssh-agent").is_none() {
        skip("ssh-agent is not installed");
        return;
    }
    keygen(&first.path("ca"), "ed25519", "");
    let trusted = format!("TrustedUserCAKeys {}", first.path("ca.pub").display());
    let Some(sshd) = Sshd::start(&["ed25519"], &trusted) else { return };
    target(&sshd, &Prompter::default());
    std::fs::write(sshd.path("agent"), AGENT).unwrap();
    std::fs::write(sshd.path("port"), sshd.port.to_string()).unwrap();
    keygen(&sshd.path("other"), "ed25519", "");
    keygen(&sshd.path("certified"), "rsa", "");
    sign(&first.path("ca"), &sshd.path("certified"), "+1h");
    std::fs::set_permissions(sshd.path("certified"), PermissionsExt::from_mode(0o600)).unwrap();
    let line =
        "eval \"$(ssh-agent)\" >/dev/null; trap 'kill $SSH_AGENT_PID' EXIT; ssh-add -q certified; exec_test";
    let again = format!(
        "'{}' --exact ssh_auth::certificates_of_the_ssh_agent_and_identities_only --nocapture",
        std::env::current_exe().unwrap().display()
    );
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line.replace("exec_test", &again)).current_dir(sshd.path(""));
    shell.env("HVTUI_TEST_AGENT_FOLDER", sshd.path("")).env("HOME", sshd.home());
    let output = tokio::task::spawn_blocking(move || shell.output_in_time().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
