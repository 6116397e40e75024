package apiserver

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/verbs"
)

// Hijack implements http.Hijacker: a connection that is taken over was answered by an upgrade.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked = true
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// wantsSocket tells whether a watch shall come over a WebSocket, as browsers can read it.
func (x *exchange) wantsSocket() bool { return wsstream.IsWebSocketRequest(x.req) }

// socket sends each event of a watch as one message: text for JSON, binary for protobuf and CBOR. What the client sends is ignored until it closes.
func (x *exchange) socket(ctx context.Context, w *verbs.Watch, e *eventWriter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := websocket.Server{Handshake: pickProtocol, Handler: func(ws *websocket.Conn) {
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, ws) // ends with the connection
		}()
		e.send = func(frame []byte) error {
			if err := ws.SetWriteDeadline(time.Now().Add(x.server.cfg.Limits.Stall)); err != nil {
				return err
			}
			if x.accept.Media == codec.Protobuf {
				return websocket.Message.Send(ws, frame[codec.FrameHeader:])
			}
			if x.accept.Media == codec.CBOR {
				return websocket.Message.Send(ws, frame)
			}
			return websocket.Message.Send(ws, string(frame))
		}
		_ = x.stream(ctx, w, e) // how it ended was logged, and the answer has long begun
	}}
	server.ServeHTTP(x.w, x.req)
	return nil
}

// pickProtocol agrees to the first subprotocol that a client offers: the events are the same in all. As in Kubernetes, pages of any origin may
// connect: those that show a token in a subprotocol come from elsewhere by nature.
func pickProtocol(config *websocket.Config, _ *http.Request) error {
	if len(config.Protocol) > 1 {
		config.Protocol = config.Protocol[:1]
	}
	return nil
}
