//! A session channel of russh as a command's streams, its standard error kept apart.

use std::sync::Arc;

use russh::client::{Handle, Msg};
use russh::{Channel, ChannelMsg, ChannelReadHalf};

use super::client::{Client, End, why};
use super::report::{STDERR_BYTES, Text};
use super::streams::{AgentReader, AgentWriter, Feed, Keep, LinkEnd, streams};

/// Runs `command` by the account's login shell. A task takes whatever the channel brings.
pub(super) async fn start(
    connection: &Arc<Handle<Client>>,
    connection_end: End,
    channel: Channel<Msg>,
    command: &str,
) -> Result<(AgentReader, AgentWriter), russh::Error> {
    channel.exec(true, command).await?;
    let (source, sink) = channel.split();
    let connection: Keep = connection.clone();
    let (reader, writer, feed) = streams(Box::pin(sink.make_writer()), &connection);
    tokio::spawn(async move {
        let end = drain(source, &feed, connection_end).await;
        feed.end(end);
    });
    Ok((reader, writer))
}

async fn drain(mut source: ChannelReadHalf, feed: &Feed, connection: End) -> LinkEnd {
    let mut stderr = Text::default();
    let mut status = None;
    let mut reason = None;
    while let Some(message) = source.wait().await {
        match message {
            ChannelMsg::Data { data } => feed.push(data).await,
            ChannelMsg::ExtendedData { data, .. } => stderr.push_tail(&data, STDERR_BYTES),
            ChannelMsg::ExitStatus { exit_status } => {
                status = Some(exit_status);
                reason = Some(format!("the command ended with status {exit_status}"));
            }
            ChannelMsg::ExitSignal { signal_name, .. } => {
                reason = Some(format!("the command was killed by SIG{signal_name:?}"));
            }
            ChannelMsg::Failure => {
                reason = Some("the host refuses to run commands".to_owned());
                break;
            }
            ChannelMsg::Close => {
                reason = reason.or_else(|| Some("the host closed the session".to_owned()));
                break;
            }
            _ => {}
        }
    }
    let lost = reason.is_none();
    let reason = match reason {
        Some(reason) => reason,
        None => why(connection).await.map_or_else(|| "the session ended".to_owned(), |why| why.to_string()),
    };
    LinkEnd { reason, lost, status, stderr: stderr.clean() }
}
