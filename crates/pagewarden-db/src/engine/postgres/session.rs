//! A session that blocks. The driver's own blocking client enters and leaves its runtime for
//! every message, which took most of its time where each row is one (`COPY`). Here it is
//! entered once for an answer.

use std::pin::pin;

use futures_util::StreamExt as _;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{CancelToken, Client, Config, Error, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::Result;

/// What the driver gives.
type Answered<T> = std::result::Result<T, Error>;

/// A session. To drop it is to say so to the server, and first to read all that is on its way.
#[derive(Debug)]
pub struct Session {
    // Dropped first: the line ends when no client is left that may ask for more.
    client: Client,
    line: Line,
}

#[derive(Debug)]
struct Line {
    /// What moves messages while a caller waits for an answer.
    connection: Option<JoinHandle<Answered<()>>>,
    runtime: Runtime,
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            // It ends in any case, and no caller waits for its error.
            let _ = self.runtime.block_on(connection);
        }
    }
}

impl Session {
    /// Opens one, encrypted if it is said how.
    ///
    /// # Errors
    /// The system gives no runtime; or the server is not reached, or refuses.
    pub fn open(
        config: &mut Config,
        tls: Option<&MakeRustlsConnect>,
    ) -> std::io::Result<Answered<Self>> {
        let runtime = runtime()?;
        let opened = runtime.block_on(async {
            Ok(match tls {
                None => {
                    let (client, line) = config.ssl_mode(SslMode::Disable).connect(NoTls).await?;
                    (client, tokio::spawn(line))
                }
                Some(tls) => {
                    let config = config.ssl_mode(SslMode::Require);
                    let (client, line) = config.connect(tls.clone()).await?;
                    (client, tokio::spawn(line))
                }
            })
        });
        Ok(opened.map(|(client, connection)| Self {
            client,
            line: Line { connection: Some(connection), runtime },
        }))
    }

    /// Leaves the server in the middle of an answer.
    pub fn abandon(mut self) {
        self.line.connection = None;
    }

    /// The answer to statements, as text.
    ///
    /// # Errors
    /// The server refuses or is gone.
    pub fn ask(&mut self, statements: &str) -> Answered<Vec<SimpleQueryMessage>> {
        let answer = self.line.runtime.block_on(self.client.simple_query(statements));
        answer.map_err(|error| self.cause(error))
    }

    /// Gives the pieces of what `COPY ... TO STDOUT` sends, one after the other.
    ///
    /// # Errors
    /// The server refuses or is gone; within, those that `see` gave, which ends it.
    pub fn copy_out(
        &mut self,
        statement: &str,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Answered<Result<()>> {
        let answer = self.line.runtime.block_on(async {
            let mut pieces = pin!(self.client.copy_out(statement).await?);
            while let Some(piece) = pieces.next().await {
                if let Err(error) = see(&piece?) {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(()))
        });
        answer.map_err(|error| self.cause(error))
    }

    /// What ends a statement of this session from outside.
    pub fn cancel_token(&self) -> CancelToken {
        self.client.cancel_token()
    }

    /// Why the line was closed, if that is all that is known.
    fn cause(&mut self, error: Error) -> Error {
        let connection = if error.is_closed() { self.line.connection.take() } else { None };
        match connection.map(|connection| self.line.runtime.block_on(connection)) {
            Some(Ok(Err(cause))) => cause,
            _ => error,
        }
    }
}

/// Ends the statement of a session, if the server can be reached.
pub fn cancel(token: &CancelToken, tls: Option<&MakeRustlsConnect>) {
    let Ok(runtime) = runtime() else { return };
    // No caller waits for the error.
    let _ = runtime.block_on(async {
        match tls {
            None => token.cancel_query(NoTls).await,
            Some(tls) => token.cancel_query(tls.clone()).await,
        }
    });
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
