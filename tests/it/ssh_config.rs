//! Our reader of ssh configurations beside OpenSSH's own: each row is asked of both, and both must say the same.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::cluster::skip;
use crate::common::in_time::OutputInTime;
use crate::common::sshd;
use hvtui::ssh::config::{Proxy, Question, Reader, Settings};
use hvtui::ssh::{Choice, Family, HostKeyPolicy, Resolver, TransportKind, Wanted};

const ME: &str = "root";

/// A name to ask for, and the configuration. `inc/*.conf` are the files of [`INCLUDED`].
const ROWS: &[(&str, &str)] = &[
    ("gpu", ""),
    ("gpu", "# only a comment\n\n  \t\n"),
    ("gpu", "Host gpu\n  HostName 10.0.0.7\n  User ml\n  Port 2222\n"),
    ("gpu", "Host other\n  User ml\nHost gpu\n  Port 2200\n"),
    ("gpu", "Host g?u\n User one\nHost *\n User two\n Port 7\n"),
    ("gpu", "Host * !gpu\n User one\nHost *\n User two\n"),
    ("cpu", "Host * !gpu\n User one\nHost *\n User two\n"),
    ("gpu", "Host !gpu\n User one\n"),
    ("cpu", "Host !gpu\n User one\n"),
    ("gpu", "User first\nHost gpu\n User second\n"),
    ("gpu", "host=gpu\nuser=ml\nPORT = 99\nHostName= a.example\n"),
    ("gpu", "Host \"gpu\"\n User \"ml\"\n IdentityFile \"~/a b\"\n"),
    ("gpu", "Host gpu # comment\n User ml # comment\n Port 23\n"),
    ("gpu", "Host gpu\r\n User ml\r\n Port 23\r\n"),
    ("gpu", "Host gpu\n HostName %h.cluster.example\n"),
    ("gpu.a", "Host *.a\n HostName %h.%h%%eth0\n"),
    ("GPU", "Host gpu\n User lower\nHost GPU\n User upper\n"),
    ("GPU", "Match host gpu\n User lower\n"),
    ("GPU", "Match originalhost gpu\n User lower\n"),
    ("gpu", "Match host GPU\n User upper\n"),
    ("gpu", "HostName real.example\nMatch host real.example\n User ml\nMatch originalhost gpu\n Port 77\n"),
    ("gpu", "HostName real.example\nMatch host gpu\n User ml\nMatch host *.example,!x\n Port 77\n"),
    ("gpu", "Match host=gpu\n User ml\n"),
    ("gpu", "Match user root\n Port 1\nMatch localuser root\n HostName x\n"),
    ("gpu", "User ml\nMatch user root\n Port 1\nMatch user ml,x\n Port 2\n"),
    ("gpu", "Match !host gpu\n User a\nMatch !host cpu\n User b\nMatch all\n Port 5\n"),
    ("gpu", "Match host gpu user root\n Port 1\nMatch host gpu user nobody\n HostName no\n"),
    ("gpu", "Match host \"gpu,cpu\"\n Port 1\n"),
    (
        "gpu",
        "IdentityFile ~/.ssh/one\nIdentityFile ~/.ssh/two\nIdentityFile ~/.ssh/one\nIdentitiesOnly yes\n",
    ),
    ("gpu", "Host gpu\n IdentityFile %d/%n_%h_%p_%r_%u_%%\n User ml\n Port 44\n HostName h.example\n"),
    ("gpu", "CertificateFile ~/a-cert.pub\nCertificateFile ~/b-cert.pub\n"),
    ("gpu", "IdentityAgent none\n"),
    ("gpu", "IdentityAgent SSH_AUTH_SOCK\n"),
    ("gpu", "IdentityAgent ~/agent.sock\n"),
    ("gpu", "ProxyJump ml@bastion:2222,inner\n"),
    ("gpu", "ProxyJump none\nProxyJump bastion\n"),
    ("gpu", "ProxyCommand nc -x 'a b' %h %p # %%\n"),
    ("gpu", "ProxyCommand none\nProxyJump bastion\n"),
    ("gpu", "ProxyJump bastion\nProxyCommand nc %h %p\n"),
    ("gpu", "ProxyCommand nc %h %p\nProxyJump bastion\n"),
    ("gpu", "UserKnownHostsFile /k/one /k/two\nGlobalKnownHostsFile /k/three\n"),
    ("gpu", "UserKnownHostsFile \"/k/a b\" ~/kh\n"),
    ("gpu", "UserKnownHostsFile none\nGlobalKnownHostsFile none\n"),
    ("gpu", "StrictHostKeyChecking yes\n"),
    ("gpu", "StrictHostKeyChecking no\n"),
    ("gpu", "StrictHostKeyChecking accept-new\nHostKeyAlias alias-1\n"),
    ("gpu", "ConnectTimeout 7\nAddressFamily inet6\nBindAddress 127.0.0.1\n"),
    ("gpu", "ConnectTimeout 1m30s\nAddressFamily inet\n"),
    ("gpu", "KexAlgorithms ecdh-sha2-nistp384,curve25519-sha256\nCiphers aes256-ctr\nMACs hmac-sha2-512\n"),
    ("gpu", "KexAlgorithms ecdh-sha2-nistp384\nKexAlgorithms curve25519-sha256\nCiphers -*gcm*,*cbc\n"),
    (
        "gpu",
        "HostKeyAlgorithms +ssh-rsa\nPubkeyAcceptedKeyTypes -ecdsa*\nCASignatureAlgorithms ^rsa-sha2-*\n",
    ),
    ("gpu", "HostKeyAlgorithms rsa-sha2-512,ssh-ed25519*\nRequiredRSASize 3072\n"),
    ("gpu", "Host cpu\n MACs hmac-sha2-512\nHost gpu\n MACs hmac-sha1\n"),
    ("gpu", "Include inc/a.conf\nUser outer\nPort 1\n"),
    ("gpu", "User outer\nInclude inc/a.conf\nPort 1\n"),
    ("gpu", "Host cpu\n Include inc/*.conf\nHost gpu\n Port 3\n"),
    ("gpu", "Host gpu\n Include inc/*.conf\n HostName after\n"),
    ("gpu", "Include inc/none*.conf inc/b.conf\n"),
    ("gpu", "Include ~/.ssh/inc/deep.conf\nUser outer\n"),
    ("gpu", "IgnoreUnknown UseKey*,Wish\nUseKeychain yes\nWish granted\nUser ml\n"),
    ("gpu", "SendEnv LANG LC_*\nLocalForward 1 a:2\nServerAliveInterval 3\nForwardAgent yes\nUser ml\n"),
];

const INCLUDED: &[(&str, &str)] = &[
    ("a.conf", "User from-a\nHost cpu\n Port 11\n"),
    ("b.conf", "Host gpu\n User from-b\n Port 12\n IdentityFile /from/b\n"),
    (".hidden.conf", "Port 13\n"),
    ("deep.conf", "Include inc/b.conf\nHostName deep\n"),
];

fn home(config: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join(".ssh/inc")).unwrap();
    write(&home.path().join(".ssh/config"), config);
    for (name, text) in INCLUDED {
        write(&home.path().join(".ssh/inc").join(name), text);
    }
    home
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

fn question(name: &str) -> Question<'_> {
    Question { name, user: None, port: None, local_user: ME }
}

async fn read(home: &Path, name: &str, ssh: Option<&Path>) -> Settings {
    let reader = Reader::new(home, ssh.map(Path::to_owned)).without_system();
    reader.settings(question(name)).await.unwrap()
}

fn is_root() -> bool {
    std::process::Command::new("id")
        .arg("-un")
        .output_in_time()
        .is_ok_and(|output| output.stdout == b"root\n")
}

#[tokio::test]
async fn our_reader_says_what_openssh_says() {
    let Some(ssh) = sshd::program("ssh").filter(|_| is_root()) else {
        return skip("no ssh here, or not root, whose name the rows hold");
    };
    let mut wrong = Vec::new();
    for (name, config) in ROWS {
        let home = home(config);
        // An include is looked for in the account's ~/.ssh by OpenSSH, which goes by no variable: named in full.
        let full = home.path().join(".ssh").display().to_string();
        let text = config.replace("~/.ssh/inc", "inc").replace("inc/", &format!("{full}/inc/"));
        write(&home.path().join(".ssh/config"), &text);
        write(
            &home.path().join(".ssh/inc/deep.conf"),
            &format!("Include {full}/inc/b.conf\nHostName deep\n"),
        );
        let strip = |settings: Settings| Settings { notes: Vec::new(), needs: Vec::new(), ..settings };
        let theirs =
            Reader::new(home.path(), Some(ssh.clone())).without_system().settings(question(name)).await;
        let theirs = match theirs {
            Ok(theirs) => strip(theirs),
            Err(error) => {
                wrong.push(format!("--- {name}\n{config}theirs: {error}"));
                continue;
            }
        };
        let ours = strip(read(home.path(), name, None).await);
        // What is set to what OpenSSH does anyway is as good as not set.
        let ours = Settings {
            port: ours.port.filter(|port| *port != 22),
            user: ours.user.filter(|user| user != ME),
            policy: ours.policy.filter(|_| theirs.policy.is_some()),
            ..ours
        };
        if ours != theirs {
            wrong.push(format!("--- {name}\n{config}ours:   {ours:?}\ntheirs: {theirs:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows differ\n{}", wrong.len(), ROWS.len(), wrong.join("\n"));
}

#[tokio::test]
async fn what_matters_and_is_not_understood_is_said_with_its_line() {
    let home = home(
        "Host gpu\n StrictHostKeyChecking no\n RevokedHostKeys /etc/krl\n KexAlgorithms +x\n IdentityFile ~/%C\n\
         Match exec \"true\"\n User no\nMatch canonical\n User no\nHost gpu\n Frobnicate yes\n Port x\n User \"a\n",
    );
    let settings = read(home.path(), "gpu", None).await;
    let said: Vec<String> = settings.notes.iter().map(ToString::to_string).collect();
    let file = home.path().join(".ssh/config").display().to_string();
    for (line, part) in [
        (2, "taken as ask"),
        (5, "the token %C"),
        (6, "Match exec is not understood"),
        (8, "Match canonical is not understood"),
        (11, "frobnicate is not known"),
        (12, "port x is not understood"),
        (13, "a quote is not closed"),
    ] {
        let place = format!("{file}:{line}: ");
        assert!(
            said.iter().any(|note| note.starts_with(&place) && note.contains(part)),
            "{line} {part}: {said:#?}"
        );
    }
    assert_eq!(said.len(), 7, "{said:#?}");
    assert_eq!((settings.policy, settings.user, settings.port), (Some(HostKeyPolicy::Ask), None, None));
    let [need] = &settings.needs[..] else { panic!("{:?}", settings.needs) };
    assert!(need.vital && need.note.to_string() == format!("{file}:3: revokedhostkeys /etc/krl"), "{need:?}");
}

#[tokio::test]
async fn openssh_decides_conditions_that_we_can_not() {
    let Some(ssh) = sshd::program("ssh") else { return skip("no ssh here") };
    let home = home("Match exec \"test %h = gpu\"\n User by-exec\n ProxyCommand nc %h %p\n");
    let settings = read(home.path(), "gpu", Some(&ssh)).await;
    assert_eq!((settings.user.as_deref(), &settings.notes[..]), (Some("by-exec"), &[][..]));
    assert_eq!(settings.proxy, Some(Proxy::Command("nc %h %p".to_owned())));
    assert_eq!(read(home.path(), "cpu", Some(&ssh)).await.user, None);
}

#[tokio::test]
async fn a_configuration_that_openssh_refuses_is_an_error_that_names_the_file() {
    let Some(ssh) = sshd::program("ssh") else { return skip("no ssh here") };
    let home = home("Host gpu\n Frobnicate yes\n User x\n");
    let reader = Reader::new(home.path(), Some(ssh)).without_system();
    let error = reader.settings(question("gpu")).await.unwrap_err().to_string();
    assert!(
        error.contains("Bad configuration option: frobnicate") && error.contains(".ssh/config"),
        "{error}"
    );

    let open = home.path().join(".ssh/config");
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o666)).unwrap();
    let error = reader.settings(question("gpu")).await.unwrap_err().to_string();
    assert!(error.contains("chmod go-w"), "{error}");
}

/// Of `IgnoreUnknown` the first line alone counts, and the system's ssh gets one from us.
#[tokio::test]
async fn what_may_be_unknown_goes_along_to_the_systems_ssh() {
    let Some(ssh) = sshd::program("ssh") else { return skip("no ssh here") };
    let unknown = "IgnoreUnknown UseKey*,Wish\nUseKeychain yes\nWish granted\n";
    // said by our own reader, and by `ssh -G`
    for more in ["", "User ml\n"] {
        let home = home(&format!("{unknown}{more}"));
        let reader = Reader::new(home.path(), Some(ssh.clone())).without_system();
        let resolver = Resolver { reader: &reader, home: home.path(), local_user: Some(ME), find: &|_| None };
        let wanted = Wanted { choice: Choice::OpenSsh, ..Wanted::new("gpu-a".into(), "gpu") };
        let target = resolver.target(&wanted).await.unwrap();
        let TransportKind::OpenSsh(ssh) = &target.transport else { panic!("{target:?}") };
        assert_eq!(ssh.ignore_unknown.as_deref(), Some("UseKey*,Wish"), "{more}");
    }
}

#[tokio::test]
async fn what_is_settled_already_counts_first() {
    let home = home("Match user ml\n Port 99\n IdentityFile ~/%r\nHost gpu\n User other\n Port 98\n");
    for ssh in [None, sshd::program("ssh")] {
        let reader = Reader::new(home.path(), ssh).without_system();
        let asked = Question { user: Some("ml"), ..question("gpu") };
        let settings = reader.settings(asked).await.unwrap();
        assert_eq!((settings.user.as_deref(), settings.port), (Some("ml"), Some(99)));
        assert_eq!(settings.identities, [home.path().join("ml")]);
        let settings = reader.settings(Question { port: Some(22), ..asked }).await.unwrap();
        assert_eq!((settings.port, settings.family), (Some(22), Family::Any));
    }
}

/// The system's ssh goes through a jump host by itself and knows no fingerprint of it.
#[tokio::test]
async fn a_pinned_jump_host_is_not_left_to_the_systems_ssh() {
    let Some(ssh) = sshd::program("ssh") else { return skip("no ssh here") };
    let home = home("Host gpu\n ProxyJump bastion\n");
    let reader = Reader::new(home.path(), Some(ssh)).without_system();
    for (at, choice) in [("gpu", Choice::OpenSsh), ("bastion", Choice::OpenSsh), ("none", Choice::Russh)] {
        let choice_of = |name: &str| if name == at { choice } else { Choice::Russh };
        let find = |name: &str| {
            let pinned =
                Wanted { fingerprint: Some("SHA256:x".to_owned()), ..Wanted::new("jump".into(), name) };
            (name == "bastion").then(|| Wanted { choice: choice_of(name), ..pinned })
        };
        let resolver = Resolver { reader: &reader, home: home.path(), local_user: Some(ME), find: &find };
        let wanted = Wanted { choice: choice_of("gpu"), ..Wanted::new("gpu-a".into(), "gpu") };
        match (at, resolver.target(&wanted).await) {
            ("none", Ok(target)) => {
                let pins: Vec<_> =
                    target.hops().iter().filter_map(|hop| hop.fingerprint.as_deref()).collect();
                assert_eq!(pins, ["SHA256:x"], "hvtui compares it itself");
            }
            (at, Err(error)) if at != "none" => {
                let error = error.to_string();
                for part in [
                    "gpu-a",
                    "bastion:22 has a pinned fingerprint",
                    "hvtui hosts trust",
                    "transport = \"russh\"",
                ] {
                    assert!(error.contains(part), "{at}: {error}");
                }
            }
            (at, other) => panic!("{at}: {other:?}"),
        }
    }
}
