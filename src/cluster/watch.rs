//! A host without an agent: its own tools' text becomes facts and samples until the link ends. What it is asked to
//! do beyond that is answered with why it can't.

use std::sync::Arc;

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time;

use super::host_task::{Closed, HostTask};
use super::link::{Link, LinkError};
use super::messages::Command;
use super::session;
use crate::clock;
use crate::domain::event::Event;
use crate::domain::host::{HostInfo, LinkState};
use crate::domain::plausible;
use crate::telemetry::RemoteReader;

/// nvidia-smi may take ten seconds, twice a reading.
const SILENCE: Duration = Duration::from_secs(30);

/// Shows the host until the link ends or a person asks to try again; says why it ended.
pub(crate) async fn watch(task: &mut HostTask, mut link: Link) -> Result<LinkError, Closed> {
    let reason = link.limited.take().unwrap_or_default();
    task.link_changed(LinkState::Limited { reason: reason.clone() }).await?;
    let mut reader = RemoteReader::default();
    let mut known: Option<HostInfo> = None;
    let mut buffer = vec![0; 16 * 1024];
    let silence = time::sleep(SILENCE);
    tokio::pin!(silence);
    let why = loop {
        tokio::select! {
            biased;
            command = task.inbox.recv() => match command.ok_or(Closed)? {
                // An agent was installed meanwhile, or may have been: that begins anew.
                Command::Reconnect => break "asked to try again".to_owned(),
                Command::Send(message) => task.not_connected(*message, &reason).await?,
            },
            count = link.reader.read(&mut buffer) => {
                let count = match count {
                    Ok(0) => break "the host's tools ended".to_owned(),
                    Ok(count) => count,
                    Err(error) => break error.to_string(),
                };
                let told = match reader.push(&buffer[..count], clock::host_now()) {
                    Ok(told) => told,
                    Err(error) => break error.to_string(),
                };
                for (mut info, mut sample) in told {
                    silence.set(time::sleep(SILENCE));
                    info.banner = Some(session::cut(&link.banner)).filter(|banner| !banner.is_empty());
                    info.login = Some(session::cut(&link.login)).filter(|login| !login.is_empty());
                    plausible::bound_info(&mut info);
                    plausible::bound_sample(&mut sample);
                    if known.as_ref() != Some(&info) {
                        let info = Arc::new(known.insert(info).clone());
                        task.event(task.origin(), Event::HostDescribed { info }).await?;
                    }
                    task.sampled(sample).await?;
                }
            }
            () = &mut silence => break format!("no reading for {} s", SILENCE.as_secs()),
        }
    };
    Ok(LinkError::Unreachable(why))
}
