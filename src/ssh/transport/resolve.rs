//! From what the hosts file says of a host, through the person's ssh configuration, to a target with its way.

use std::path::{Path, PathBuf};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::config::{Agent, Proxy, Question, Reader, Settings};
use super::error::SshError;
use super::jump::{self, Hop};
use super::openssh;
use super::target::{OpenSsh, Route, Target, TransportKind};
use crate::domain::ids::HostId;
use crate::domain::question::HostKeyPolicy;

/// More hops than anyone has.
const MOST_HOPS: usize = 8;
/// The port of ssh where nothing else is said.
const PORT: u16 = 22;

/// Whose ssh a person wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// hvtui's own; the system's where the configuration asks for what only that can do.
    #[default]
    Auto,
    /// hvtui's own.
    Russh,
    /// The system's.
    OpenSsh,
}

/// A host as the hosts file names it. What is set here counts before the ssh configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What hvtui calls it.
    pub host: HostId,
    /// An address, or an alias of the ssh configuration.
    pub name: String,
    /// Login name.
    pub user: Option<String>,
    /// Port of its sshd.
    pub port: Option<u16>,
    /// The private key file to offer.
    pub identity: Option<PathBuf>,
    /// The only acceptable host key.
    pub fingerprint: Option<String>,
    /// What becomes of an unknown host key.
    pub policy: Option<HostKeyPolicy>,
    /// Hosts to go through, `user@host:port,…`; `none`: go directly, whatever the ssh configuration says.
    pub jump: Option<String>,
    /// Whose ssh.
    pub choice: Choice,
}

impl Wanted {
    /// A host of which no more than its name is known.
    pub fn new(host: HostId, name: impl Into<String>) -> Self {
        let name = name.into();
        let (user, port, identity, fingerprint, policy, jump) = (None, None, None, None, None, None);
        Self { host, name, user, port, identity, fingerprint, policy, jump, choice: Choice::Auto }
    }
}

/// Turns wanted hosts into targets.
pub struct Resolver<'a> {
    /// Reads the ssh configuration.
    pub reader: &'a Reader,
    /// The person's home folder.
    pub home: &'a Path,
    /// The login name here, where it is known.
    pub local_user: Option<&'a str>,
    /// The hosts file: a jump host may be one of its hosts.
    pub find: &'a (dyn Fn(&str) -> Option<Wanted> + Send + Sync),
}

impl Resolver<'_> {
    /// The target for a host, its jump hosts with it. Connects to no host.
    pub async fn target(&self, wanted: &Wanted) -> Result<Target, SshError> {
        let target = self.resolve(wanted.clone(), None, Vec::new()).await?;
        target.check()?;
        Ok(target)
    }

    /// `ahead` is the rest of a chain that an outer host has set; `passed` are the names on the way so far.
    fn resolve(
        &self,
        wanted: Wanted,
        ahead: Option<Vec<Hop>>,
        mut passed: Vec<String>,
    ) -> BoxFuture<'_, Result<Target, SshError>> {
        async move {
            let name = match wanted.port {
                Some(port) => format!("{}:{port}", wanted.name),
                None => wanted.name.clone(),
            };
            let repeated = passed.iter().any(|passed| passed.eq_ignore_ascii_case(&name));
            passed.push(name);
            if repeated || passed.len() > MOST_HOPS + 1 {
                passed.reverse();
                return Err(SshError::JumpLoop { host: wanted.host, hops: passed.join(" → ") });
            }
            // Nothing that could be an option may reach `ssh`.
            Target::new(wanted.host.clone(), &wanted.name, PORT, "nobody").check()?;
            let question = Question {
                name: &wanted.name,
                user: wanted.user.as_deref(),
                port: wanted.port,
                local_user: self.local_user.unwrap_or_default(),
            };
            let settings = self.reader.settings(question).await?;
            let mut target = self.plain(&wanted, &settings)?;
            target.check()?;
            target.route = self.route(&wanted, &target, &settings, ahead, passed).await?;
            self.choose_transport(&wanted, &mut target, &settings).await?;
            Ok(target)
        }
        .boxed()
    }

    /// Everything but the way.
    fn plain(&self, wanted: &Wanted, settings: &Settings) -> Result<Target, SshError> {
        let user = settings.user.as_deref().or(self.local_user);
        let user = user.ok_or_else(|| SshError::NoUser { host: wanted.host.clone() })?;
        let target = Target::new(wanted.host.clone(), &settings.address, settings.port.unwrap_or(PORT), user);
        let mut notes: Vec<String> = settings.notes.iter().map(ToString::to_string).collect();
        let known_hosts = self.known_hosts(settings, &mut notes);
        let named = wanted.identity.clone().map(|file| vec![file]);
        Ok(Target {
            identities: named.unwrap_or_else(|| settings.identities.clone()),
            identities_only: settings.identities_only,
            certificates: settings.certificates.clone(),
            known_hosts,
            fingerprint: wanted.fingerprint.clone(),
            connect_timeout: settings.connect_timeout.unwrap_or(target.connect_timeout),
            auth_agent: settings.agent != Agent::Off,
            agent_socket: match &settings.agent {
                Agent::Socket(path) => Some(path.clone()),
                Agent::Usual | Agent::Off => None,
            },
            host_key_policy: wanted.policy.or(settings.policy).unwrap_or(match wanted.fingerprint {
                Some(_) => HostKeyPolicy::Strict,
                None => HostKeyPolicy::Ask,
            }),
            host_key_alias: settings.host_key_alias.clone(),
            bind_address: settings.bind_address,
            family: settings.family,
            algorithms: settings.algorithms.clone(),
            notes,
            ..target
        })
    }

    /// The files of known host keys. The first one is where a new key goes, so it is a real one of the person's own.
    fn known_hosts(&self, settings: &Settings, notes: &mut Vec<String>) -> Vec<PathBuf> {
        let usual = self.home.join(".ssh/known_hosts");
        let mut files = settings.user_known_hosts.clone().unwrap_or_else(|| vec![usual.clone()]);
        files.retain(|file| file != Path::new("/dev/null"));
        if files.is_empty() {
            notes.push(format!(
                "UserKnownHostsFile names no file to keep host keys in: hvtui keeps them in {}",
                usual.display()
            ));
            files.push(usual);
        }
        let machine = || vec![PathBuf::from("/etc/ssh/ssh_known_hosts")];
        files.extend(settings.global_known_hosts.clone().unwrap_or_else(machine));
        files
    }

    async fn route(
        &self,
        wanted: &Wanted,
        target: &Target,
        settings: &Settings,
        ahead: Option<Vec<Hop>>,
        passed: Vec<String>,
    ) -> Result<Route, SshError> {
        let host = || wanted.host.clone();
        let read = |text: &str| jump::hops(text).map_err(|detail| SshError::BadJump { host: host(), detail });
        let hops = match (ahead, &wanted.jump, &settings.proxy) {
            (Some(hops), _, _) => hops,
            (None, Some(text), _) if text.eq_ignore_ascii_case("none") => return Ok(Route::Direct),
            (None, Some(text), _) | (None, None, Some(Proxy::Jump(text))) => read(text)?,
            (None, None, Some(Proxy::Command(line))) => {
                let line = command(line, wanted, target);
                return line.map(Route::Command).map_err(|detail| SshError::BadJump { host: host(), detail });
            }
            (None, None, None) => return Ok(Route::Direct),
        };
        let mut hops = hops;
        let Some(last) = hops.pop() else { return Ok(Route::Direct) };
        let known = (self.find)(&last.name).unwrap_or_else(|| Wanted::new(host(), &last.name));
        let next = Wanted {
            host: host(),
            user: last.user.or(known.user.clone()),
            port: last.port.or(known.port),
            ..known
        };
        // A chain is written once, where it begins: the hops' own are not looked at but for the first one.
        let ahead = (!hops.is_empty()).then_some(hops);
        let hop = self.resolve(next, ahead, passed).await?;
        Ok(match &hop.transport {
            TransportKind::Russh => Route::Jump(Box::new(hop)),
            TransportKind::OpenSsh(_) => {
                no_pins(wanted, [&hop])?;
                Route::Command(openssh::through(&hop, &target.address, target.port))
            }
        })
    }

    /// Whose ssh speaks with it.
    async fn choose_transport(
        &self,
        wanted: &Wanted,
        target: &mut Target,
        settings: &Settings,
    ) -> Result<(), SshError> {
        // What only the system's can do.
        let needs = &settings.needs;
        let wants = match wanted.choice {
            Choice::Russh => false,
            Choice::OpenSsh => true,
            Choice::Auto => !needs.is_empty(),
        };
        let ssh = if wants { Some(self.reader.system_ssh().await) } else { None };
        let refuse = |detail: String| Err(SshError::NoTransport { host: wanted.host.clone(), detail });
        match ssh {
            Some(Ok((program, config))) => {
                no_pins(wanted, target.hops())?;
                let why = needs.iter().map(|need| need.note.to_string());
                target.notes.extend(why.map(|why| format!("spoken with by the system's ssh: {why}")));
                let (program, alias) = (program.to_owned(), wanted.name.clone());
                let ignore_unknown = settings.ignore_unknown.clone();
                let ssh = OpenSsh { program, alias, config, ignore_unknown };
                target.transport = TransportKind::OpenSsh(ssh);
                return Ok(());
            }
            Some(Err(why)) if wanted.choice == Choice::OpenSsh => return refuse(why),
            Some(Err(_)) | None => {}
        }
        if let Some(vital) = needs.iter().find(|need| need.vital) {
            return refuse(format!(
                "{}: only the system's ssh can do that: use transport = \"openssh\", or change the line",
                vital.note
            ));
        }
        target
            .notes
            .extend(needs.iter().map(|need| format!("{}: only the system's ssh can do that", need.note)));
        Ok(())
    }
}

/// The system's `ssh` knows no fingerprints, and at a jump host nothing compares them for it.
fn no_pins<'a>(wanted: &Wanted, hops: impl IntoIterator<Item = &'a Target>) -> Result<(), SshError> {
    match hops.into_iter().find(|hop| hop.fingerprint.is_some()) {
        None => Ok(()),
        Some(hop) => {
            let detail = format!(
                "jump host {} has a pinned fingerprint, which the system's ssh can't compare: run hvtui hosts trust {} \
                 and remove it, or use transport = \"russh\"",
                hop.shown(),
                wanted.host
            );
            Err(SshError::NoTransport { host: wanted.host.clone(), detail })
        }
    }
}

/// A proxy command with its tokens. The names in it go through a shell, so they must be plain.
fn command(line: &str, wanted: &Wanted, target: &Target) -> Result<String, String> {
    let port = target.port.to_string();
    let mut out = String::new();
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let value = match letters.next() {
            Some('%') => "%",
            Some('h') => &target.address,
            Some('n') => &wanted.name,
            Some('p') => &port,
            Some('r') => &target.user,
            other => {
                let token = other.map(String::from).unwrap_or_default();
                return Err(format!(
                    "ProxyCommand has the token %{token}; hvtui knows %h, %n, %p, %r and %%"
                ));
            }
        };
        if value != "%" && !is_plain(value) {
            return Err(format!(
                "`{value}` must not go into a ProxyCommand: other characters than A-Z a-z 0-9 . _ : @ -"
            ));
        }
        out.push_str(value);
    }
    Ok(out)
}

fn is_plain(name: &str) -> bool {
    !name.starts_with('-') && name.chars().all(|c| c.is_ascii_alphanumeric() || "._:@-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_command_takes_plain_names_alone() {
        let wanted = Wanted::new("a".into(), "alias");
        let target = |address: &str, user: &str| Target::new("a".into(), address, 2222, user);
        let good = command("nc -X 5 %h %p # %r %n %%", &wanted, &target("a.example", "li@x"));
        assert_eq!(good.unwrap(), "nc -X 5 a.example 2222 # li@x alias %");
        for (address, user) in
            [("fe80::1%eth0", "li"), ("a", "DOM\\li"), ("a;b", "li"), ("$(x)", "li"), ("a", "-l")]
        {
            assert!(command("nc %h %r", &wanted, &target(address, user)).is_err(), "{address} {user}");
        }
        assert!(command("nc %C", &wanted, &target("a", "li")).is_err());
    }
}
