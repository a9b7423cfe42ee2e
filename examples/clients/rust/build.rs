// Messages of proto/gemmd/v1 as Rust types, by protoc.
fn main() -> std::io::Result<()> {
    let protos = ["session_service", "buffer_service", "compute_service"].map(|name| format!("../../../proto/gemmd/v1/{name}.proto"));
    prost_build::compile_protos(&protos, &["../../../proto"])
}
