// One matmul on a gemmd server, from Rust: x [1, 3] times w [2, 3] transposed.
//
//   cargo run -- 127.0.0.1:8470
//
// By prost and h2, which distributions have. With tonic `call` below is generated.
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
pub mod v1 { include!(concat!(env!("OUT_DIR"), "/gemmd.v1.rs")); }
use v1::{op::Kind, *};

type Server = h2::client::SendRequest<Bytes>;
type Error = Box<dyn std::error::Error>;

async fn call<A: Message, B: Message + Default>(server: &Server, method: &str, message: &A) -> Result<B, Error> {
    let request = http::Request::post(format!("http://gemmd/gemmd.v1.{method}")).header("content-type", "application/grpc").header("te", "trailers");
    let (answer, mut body) = server.clone().ready().await?.send_request(request.body(())?, false)?;
    let mut frame = BytesMut::new(); // a flag, the length, the message
    frame.put_u8(0);
    frame.put_u32(message.encoded_len() as u32);
    message.encode(&mut frame)?;
    body.send_data(frame.freeze(), true)?;
    let mut headers = answer.await?;
    let mut data = BytesMut::new();
    while let Some(piece) = headers.body_mut().data().await { data.extend_from_slice(&piece?); }
    let trailers = headers.body_mut().trailers().await?.unwrap_or_else(|| headers.headers().clone());
    if trailers["grpc-status"] != "0" { return Err(trailers["grpc-message"].to_str()?.into()); }
    data.advance(5);
    Ok(B::decode(data)?)
}

fn floats(values: &[f32]) -> Vec<u8> { values.iter().flat_map(|value| value.to_le_bytes()).collect() }

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).ok_or("give the server's HOST:PORT")?;
    let (server, connection) = h2::client::handshake(tokio::net::TcpStream::connect(address).await?).await?;
    tokio::spawn(connection);
    let open = OpenSessionRequest { label: "rust".into(), ..Default::default() };
    let session_id = call::<_, OpenSessionResponse>(&server, "SessionService/OpenSession", &open).await?.session_id;
    let mut tensors = Vec::new();
    for shape in [vec![1, 3], vec![2, 3], vec![1, 2]] {
        let request = CreateBufferRequest { session_id: session_id.clone(), dtype: DType::DtypeF32 as i32, shape, ..Default::default() };
        let buffer: v1::Buffer = call(&server, "BufferService/CreateBuffer", &request).await?;
        tensors.push(Tensor { buffer_id: buffer.buffer_id, ..Default::default() });
    }
    let [x, w, y] = <[Tensor; 3]>::try_from(tensors).unwrap().map(Some);
    let operand = |values: &Option<Tensor>| Some(Operand { values: values.clone(), ..Default::default() });
    let matmul = Matmul { a: operand(&x), b: operand(&w), d: y.clone(), ..Default::default() };
    let write = |dst, values: &[f32]| Kind::Write(Write { dst, data: floats(values), from: None });
    let kinds = [write(x, &[1., 2., 3.]), write(w, &[1., 0., 0., 1., 1., 1.]), Kind::Matmul(matmul), Kind::Read(Read { src: y, to: None })];
    let ops = kinds.map(|kind| Op { kind: Some(kind) }).to_vec();
    let request = ExecuteRequest { session_id: session_id.clone(), ops, ..Default::default() };
    let reply: ExecuteResponse = call(&server, "ComputeService/Execute", &request).await?; // one round trip
    let (result, report) = (reply.outputs[0].chunks(4).map(|mut four| four.get_f32_le()), reply.report.ok_or("no report")?);
    println!("{:?} by {} on {}", result.collect::<Vec<_>>(), report.ops[2].kernel, report.device);
    call::<_, CloseSessionResponse>(&server, "SessionService/CloseSession", &CloseSessionRequest { session_id }).await?; // frees its buffers
    Ok(())
}
