package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// grace is how long after a request's time is over its answer may still take to be read: enough for an error, no place to stay.
const grace = 10 * time.Second

// timeout is how long a request may take: what it asks for by ?timeout=, but no longer than the server allows. 0 asks for no bound of the
// client's own.
func (x *exchange) timeout() (time.Duration, error) {
	most := x.server.cfg.Limits.Timeout
	text := x.route.query.Get("timeout")
	if text == "" {
		return most, nil
	}
	asked, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err))
	case asked == 0 || asked > most:
		return most, nil
	}
	return asked, nil
}

// bound ends the request in time. Where a client does not send the body that it announced, waiting for it ends too; the listener sees to that for
// requests that take the server's own time (Serve).
func (x *exchange) bound() error {
	timeout, err := x.timeout()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(x.ctx, timeout)
	x.ctx = ctx
	x.done = append(x.done, cancel)
	if timeout < x.server.cfg.Limits.Timeout && x.req.Body != http.NoBody {
		control := http.NewResponseController(x.w)
		stop := context.AfterFunc(ctx, func() { _ = control.SetReadDeadline(time.Now()) })
		x.done = append(x.done, func() { stop() })
	}
	return nil
}

// unbound lifts from a stream the deadlines that the listener sets for every request.
func (x *exchange) unbound() {
	control := http.NewResponseController(x.w)
	_ = control.SetReadDeadline(time.Time{}) // where the connection has no deadlines, there are none to lift
	_ = control.SetWriteDeadline(time.Time{})
}
