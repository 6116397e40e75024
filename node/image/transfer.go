package image

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sort"

	streamingapi "github.com/containerd/containerd/api/services/streaming/v1"
	transferapi "github.com/containerd/containerd/api/services/transfer/v1"
	"github.com/containerd/containerd/api/types"
	transfertypes "github.com/containerd/containerd/api/types/transfer"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// chunk is the largest piece of an archive sent in one message.
const chunk = 32 << 10

// transfer has containerd import and unpack an archive, and returns the names
// under which it saved images. The archive and the progress reports each travel
// on a stream of containerd's streaming service, and the transfer call ties
// them together by name.
func (s *Store) transfer(ctx context.Context, r io.Reader, opts ImportOptions) ([]string, error) {
	ctx, done, err := s.withLease(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	source, err := s.openStream(ctx, "import")
	if err != nil {
		return nil, err
	}
	progress, err := s.openStream(ctx, "progress")
	if err != nil {
		return nil, err
	}
	go func() {
		if err := source.send(r); err != nil {
			cancel(err) // containerd takes a closed stream for the end of the archive
		}
	}()
	saved := make(chan []string, 1)
	go func() { saved <- progress.savedNames() }()

	req, err := s.request(source.id, progress.id, opts)
	if err != nil {
		return nil, err
	}
	if _, err := transferapi.NewTransferClient(s.conn).Transfer(ctx, req); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	select {
	case names := <-saved: // the stream ends with the call
		return names, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *Store) request(source, progress string, opts ImportOptions) (*transferapi.TransferRequest, error) {
	from, err := typeurl.MarshalAnyToProto(&transfertypes.ImageImportStream{Stream: source})
	if err != nil {
		return nil, err
	}
	os, arch := platform()
	p := &types.Platform{OS: os, Architecture: arch}
	dest := &transfertypes.ImageStore{
		Platforms: []*types.Platform{p},
		Unpacks:   []*transfertypes.UnpackConfiguration{{Platform: p, Snapshotter: s.snapshotter}},
		// A name in the archive stands as it is; "v1" alone becomes import:v1.
		ExtraReferences: []*transfertypes.ImageReference{{Name: "import", IsPrefix: true, AllowOverwrite: true}},
	}
	if opts.Pin {
		dest.Labels = map[string]string{pinnedLabel: pinned}
	}
	if opts.Name != "" {
		if dest.Name, err = fullName(opts.Name); err != nil {
			return nil, err
		}
		dest.ExtraReferences = nil
	}
	to, err := typeurl.MarshalAnyToProto(dest)
	if err != nil {
		return nil, err
	}
	return &transferapi.TransferRequest{
		Source: from, Destination: to,
		Options: &transferapi.TransferOptions{ProgressStream: progress},
	}, nil
}

// stream is one named stream of containerd's streaming service.
type stream struct {
	id  string
	rpc grpc.BidiStreamingClient[anypb.Any, anypb.Any]
}

func (s *Store) openStream(ctx context.Context, what string) (*stream, error) {
	rpc, err := streamingapi.NewStreamingClient(s.conn).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("open %s stream: %w", what, err)
	}
	st := &stream{id: what + "-" + rand.Text(), rpc: rpc}
	if err := st.put(&streamingapi.StreamInit{ID: st.id}); err != nil {
		return nil, fmt.Errorf("open %s stream: %w", what, err)
	}
	if _, err := rpc.Recv(); err != nil { // the acknowledgement that the name is known
		return nil, fmt.Errorf("open %s stream: %w", what, err)
	}
	return st, nil
}

func (st *stream) put(msg any) error {
	a, err := typeurl.MarshalAnyToProto(msg)
	if err != nil {
		return err
	}
	return st.rpc.Send(a)
}

// send copies r to the stream as fast as the receiver grants room for it.
func (st *stream) send(r io.Reader) error {
	defer st.rpc.CloseSend()
	buf := make([]byte, chunk)
	var room int
	for {
		for room <= 0 {
			update, err := st.grant()
			if err != nil {
				return nil // the receiver has gone; the transfer call says why
			}
			room += update
		}
		n, err := r.Read(buf[:min(chunk, room)])
		if n > 0 {
			room -= n
			if st.put(&transfertypes.Data{Data: buf[:n]}) != nil {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
	}
}

func (st *stream) grant() (int, error) {
	a, err := st.rpc.Recv()
	if err != nil {
		return 0, err
	}
	msg, err := typeurl.UnmarshalAny(a)
	if err != nil {
		return 0, err
	}
	update, ok := msg.(*transfertypes.WindowUpdate)
	if !ok {
		return 0, fmt.Errorf("unexpected %T on an archive stream", msg)
	}
	return int(update.Update), nil
}

// savedNames reads progress until the stream ends.
func (st *stream) savedNames() []string {
	names := map[string]bool{}
	for {
		a, err := st.rpc.Recv()
		if err != nil {
			break
		}
		msg, err := typeurl.UnmarshalAny(a)
		if err != nil {
			continue
		}
		if p, ok := msg.(*transfertypes.Progress); ok && p.Event == "saved" && p.Name != "" {
			names[p.Name] = true
		}
	}
	out := make([]string, 0, len(names))
	for n := range names {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}
