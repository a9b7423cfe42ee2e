// One matmul on a gemmd server, from Go: x [1, 3] times w [2, 3] transposed.
//
//	go run . 127.0.0.1:8470        unix:/run/gemmd/gemmd.sock does as well
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"

	gemmd "gemmd/v1"

	"google.golang.org/grpc"
)

func floats(values ...float32) []byte {
	var data bytes.Buffer
	binary.Write(&data, binary.LittleEndian, values)
	return data.Bytes()
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err) // the code, and a message that names the field, the limit and the remedy
	}
	return value
}

func main() {
	ctx := context.Background()
	connection := must(grpc.Dial(os.Args[1], grpc.WithInsecure()))
	sessions := gemmd.NewSessionServiceClient(connection)
	buffers := gemmd.NewBufferServiceClient(connection)
	compute := gemmd.NewComputeServiceClient(connection)

	session := must(sessions.OpenSession(ctx, &gemmd.OpenSessionRequest{Label: "go"})).SessionId
	defer sessions.CloseSession(ctx, &gemmd.CloseSessionRequest{SessionId: session}) // frees its buffers
	tensor := func(shape ...int64) *gemmd.Tensor {
		request := &gemmd.CreateBufferRequest{SessionId: session, Dtype: gemmd.DType_DTYPE_F32, Shape: shape}
		return &gemmd.Tensor{BufferId: must(buffers.CreateBuffer(ctx, request)).BufferId}
	}
	x, w, y := tensor(1, 3), tensor(2, 3), tensor(1, 2)

	write := func(dst *gemmd.Tensor, values ...float32) *gemmd.Op {
		return &gemmd.Op{Kind: &gemmd.Op_Write{Write: &gemmd.Write{Dst: dst, Data: floats(values...)}}}
	}
	matmul := &gemmd.Matmul{A: &gemmd.Operand{Values: x}, B: &gemmd.Operand{Values: w}, D: y}
	reply := must(compute.Execute(ctx, &gemmd.ExecuteRequest{SessionId: session, Ops: []*gemmd.Op{ // one round trip
		write(x, 1, 2, 3), write(w, 1, 0, 0, 1, 1, 1),
		{Kind: &gemmd.Op_Matmul{Matmul: matmul}}, {Kind: &gemmd.Op_Read{Read: &gemmd.Read{Src: y}}},
	}}))
	var result [2]float32
	binary.Read(bytes.NewReader(reply.Outputs[0]), binary.LittleEndian, &result)
	fmt.Println(result[0], result[1], "by", reply.Report.Ops[2].Kernel, "on", reply.Report.Device)
}
