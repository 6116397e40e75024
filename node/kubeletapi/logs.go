package kubeletapi

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/kubeletapi/crilog"
)

func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	q, err := parseLogQuery(r.URL.Query(), s.cfg.Clock.Now())
	if err != nil {
		s.fail(w, err)
		return
	}
	pod, err := s.pod(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	name := r.PathValue("container")
	if _, ok := containerSpec(pod, name); !ok {
		s.fail(w, refuse(http.StatusNotFound, "container %q not found in pod %q", name, pod.Name))
		return
	}
	id, err := loggedContainer(pod, name, q.previous)
	if err != nil {
		s.fail(w, err)
		return
	}
	path, err := s.logPath(r.Context(), id)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.sendLog(w, r, q, id, path)
}

// logPath asks the runtime, which knows best where it writes.
func (s *Server) logPath(ctx context.Context, id string) (string, error) {
	resp, err := s.cfg.Runtime.ContainerStatus(ctx, id, false)
	if status.Code(err) == codes.NotFound {
		return "", refuse(http.StatusBadRequest, "unable to retrieve container logs for container %s: it was removed", id)
	}
	if err != nil {
		return "", err
	}
	if resp.GetStatus().GetLogPath() == "" {
		return "", refuse(http.StatusBadRequest, "container %s has no log file", id)
	}
	return resp.Status.LogPath, nil
}

func (s *Server) sendLog(w http.ResponseWriter, r *http.Request, q logQuery, id, path string) {
	out := &response{w: w, control: http.NewResponseController(w), buf: bufio.NewWriterSize(w, 32<<10)}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	o := q.options
	o.Path, o.Flush, o.Clock = path, out.flush, s.cfg.Clock
	if q.stream != "Stderr" {
		o.Stdout = out
	}
	if q.stream != "Stdout" {
		o.Stderr = out
	}
	o.Running = func(ctx context.Context) (bool, error) { return s.running(ctx, id) }
	err := crilog.Read(r.Context(), o)
	if err == nil {
		return
	}
	s.cfg.Log.Warn("node API: log not sent to its end", "container", id, "err", err)
	if !out.started {
		s.fail(w, refuse(http.StatusBadRequest, "%v", err))
	}
}

func (s *Server) running(ctx context.Context, id string) (bool, error) {
	resp, err := s.cfg.Runtime.ContainerStatus(ctx, id, false)
	switch status.Code(err) {
	case codes.OK:
		state := resp.GetStatus().GetState()
		return state == cri.ContainerState_CONTAINER_RUNNING || state == cri.ContainerState_CONTAINER_CREATED, nil
	case codes.NotFound:
		return false, nil
	case codes.Unavailable: // the runtime restarts; its containers run on
		return true, nil
	}
	return false, err
}

// response buffers output until there is nothing more to read for now.
type response struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     *bufio.Writer
	started bool
}

func (o *response) Write(p []byte) (int, error) {
	o.started = true
	return o.buf.Write(p)
}

func (o *response) flush() {
	if o.buf.Flush() == nil {
		// The status line goes out even when nothing was logged yet, so that a
		// follower knows it is connected.
		_ = o.control.Flush()
		o.started = true
	}
}

var _ io.Writer = (*response)(nil)

type logQuery struct {
	previous bool
	stream   string // "All", "Stdout" or "Stderr"
	options  crilog.Options
}

// parseLogQuery reads the query form of the Kubernetes API's PodLogOptions, with
// the rules of its validation.
func parseLogQuery(v url.Values, now time.Time) (logQuery, error) {
	q := logQuery{stream: "All"}
	o := &q.options
	var bad error
	fetch := func(key string, set func(string) error) {
		if value := v.Get(key); value != "" && bad == nil {
			if err := set(value); err != nil {
				bad = refuse(http.StatusBadRequest, "invalid log option %s=%q: %v", key, value, err)
			}
		}
	}
	boolean := func(to *bool) func(string) error {
		return func(s string) (err error) { *to, err = strconv.ParseBool(s); return err }
	}
	atLeast := func(least int64, to **int64) func(string) error {
		return func(s string) error {
			n, err := strconv.ParseInt(s, 10, 64)
			if err == nil && n < least {
				err = refuse(0, "must be at least %d", least)
			}
			*to = &n
			return err
		}
	}
	var sinceSeconds *int64
	fetch("previous", boolean(&q.previous))
	fetch("follow", boolean(&o.Follow))
	fetch("timestamps", boolean(&o.Timestamps))
	if tail := v.Get("tail"); tail != "" && tail != "all" && v.Get("tailLines") == "" {
		v.Set("tailLines", tail)
	}
	fetch("tailLines", atLeast(0, &o.TailLines))
	fetch("limitBytes", atLeast(1, &o.LimitBytes))
	fetch("sinceSeconds", atLeast(1, &sinceSeconds))
	fetch("sinceTime", func(s string) (err error) { o.Since, err = time.Parse(time.RFC3339, s); return err })
	fetch("stream", func(s string) error {
		q.stream = s
		if s != "All" && s != "Stdout" && s != "Stderr" {
			return refuse(0, "must be All, Stdout or Stderr")
		}
		return nil
	})
	switch {
	case bad != nil:
		return q, bad
	case sinceSeconds != nil && !o.Since.IsZero():
		return q, refuse(http.StatusUnprocessableEntity, "at most one of `sinceTime` or `sinceSeconds` may be specified")
	case q.stream != "All" && o.TailLines != nil:
		return q, refuse(http.StatusUnprocessableEntity, "`tailLines` and specific `stream` are mutually exclusive for now")
	case sinceSeconds != nil:
		o.Since = now.Add(-time.Duration(*sinceSeconds) * time.Second)
	}
	return q, nil
}
