//! A bare relay on hyper, the library that the proxy is made with: what the proxy's own doing adds is
//! the difference. No headers are dropped, nothing is watched, counted or read along, and each client
//! connection has its own to the upstream.

use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// Relays to `upstream` for ever; prints its address first.
pub fn run(upstream: SocketAddr) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(async move { relay(stream, upstream).await.ok() });
        }
    })
}

async fn relay(client: TcpStream, upstream: SocketAddr) -> anyhow::Result<()> {
    client.set_nodelay(true)?;
    let stream = TcpStream::connect(upstream).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let sender = Mutex::new(sender);
    let service = service_fn(|request| pass(&sender, request));
    Ok(http1::Builder::new().serve_connection(TokioIo::new(client), service).await?)
}

async fn pass(
    sender: &Mutex<SendRequest<Incoming>>,
    request: Request<Incoming>,
) -> hyper::Result<Response<Incoming>> {
    let mut sender = sender.lock().await;
    sender.ready().await?;
    sender.send_request(request).await
}
