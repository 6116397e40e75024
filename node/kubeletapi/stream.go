package kubeletapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/proxy"
	translate "k8s.io/apiserver/pkg/util/proxy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	utilexec "k8s.io/utils/exec"
)

func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	s.command(w, r, func(_ *corev1.Pod, id string, o *remotecommand.Options) (string, error) {
		cmd := r.URL.Query()[remotecommandParam]
		if len(cmd) == 0 {
			return "", refuse(http.StatusBadRequest, "no command to execute: give the query parameter %q once for each word", remotecommandParam)
		}
		resp, err := s.cfg.Runtime.Exec(r.Context(), &cri.ExecRequest{ContainerId: id, Cmd: cmd, Stdin: o.Stdin || silentTerminal(r, o), Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY})
		return resp.GetUrl(), err
	})
}

// silentTerminal: the client has a terminal without input and an old WebSocket
// protocol. containerd 2.4 takes the missing input for its end, and closes the
// terminal before its output was read; an input on which nothing is ever sent
// has the same meaning without that.
func silentTerminal(r *http.Request, o *remotecommand.Options) bool {
	return o.TTY && !o.Stdin && wsstream.IsWebSocketRequest(r) && !wsstream.IsWebSocketRequestWithStreamCloseProtocol(r)
}

// remotecommandParam holds one word of the command each time it occurs.
const remotecommandParam = "command"

func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	s.command(w, r, func(pod *corev1.Pod, id string, o *remotecommand.Options) (string, error) {
		// Whether a process has a terminal was decided when its container was created.
		tty, _ := containerSpec(pod, r.PathValue("container"))
		o.TTY = tty
		if tty {
			o.Stderr = false
		}
		resp, err := s.cfg.Runtime.Attach(r.Context(), &cri.AttachRequest{ContainerId: id, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY})
		return resp.GetUrl(), err
	})
}

// command finds the container, has the runtime prepare a stream, and joins the
// client to it.
func (s *Server) command(w http.ResponseWriter, r *http.Request, prepare func(*corev1.Pod, string, *remotecommand.Options) (string, error)) {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		s.fail(w, refuse(http.StatusBadRequest, "%v", err))
		return
	}
	pod, err := s.pod(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	id, err := runningContainer(pod, r.PathValue("container"))
	if err != nil {
		s.fail(w, err)
		return
	}
	to, err := prepare(pod, id, o)
	if err != nil {
		s.fail(w, err)
		return
	}
	at, err := url.Parse(to)
	if err != nil {
		s.fail(w, fmt.Errorf("the container runtime named no usable address for the stream: %w", err))
		return
	}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		// Version 5 of the protocol is spoken here, and SPDY with the runtime.
		translate.NewStreamTranslatorHandler(at, nil, 0, translate.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}).ServeHTTP(w, r)
		return
	}
	s.upgrade(at).ServeHTTP(w, r)
}

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	tunnel := wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	o := &portforward.V4Options{}
	if !tunnel {
		var err error
		if o, err = portforward.NewV4Options(r); err != nil {
			s.fail(w, refuse(http.StatusBadRequest, "%v", err))
			return
		}
	}
	pod, err := s.pod(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	id, err := s.sandbox(r, pod)
	if err != nil {
		s.fail(w, err)
		return
	}
	resp, err := s.cfg.Runtime.PortForward(r.Context(), &cri.PortForwardRequest{PodSandboxId: id, Port: o.Ports})
	if err != nil {
		s.fail(w, err)
		return
	}
	at, err := url.Parse(resp.GetUrl())
	if err != nil {
		s.fail(w, fmt.Errorf("the container runtime named no usable address for the stream: %w", err))
		return
	}
	if tunnel {
		translate.NewTunnelingHandler(s.upgrade(at)).ServeHTTP(w, r)
		return
	}
	s.upgrade(at).ServeHTTP(w, r)
}

// sandbox finds the pod's sandbox that is ready, by the labels that node agents put on it.
func (s *Server) sandbox(r *http.Request, pod *corev1.Pod) (string, error) {
	list, err := s.cfg.Runtime.ListPodSandbox(r.Context(), &cri.PodSandboxFilter{
		State:         &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(pod.UID)},
	})
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", refuse(http.StatusNotFound, "pod not found (%q): it has no running sandbox", pod.Name+"_"+pod.Namespace)
	}
	newest := list[0]
	for _, p := range list[1:] {
		if p.CreatedAt > newest.CreatedAt {
			newest = p
		}
	}
	return newest.Id, nil
}

// upgrade joins a client's upgraded connection to the runtime's.
func (s *Server) upgrade(at *url.URL) http.Handler {
	return proxy.NewUpgradeAwareHandler(at, nil, false, true, errorResponder{s})
}

type errorResponder struct{ s *Server }

func (e errorResponder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	e.s.cfg.Log.Warn("node API: stream failed", "err", err)
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// runTimeout bounds a command that nobody watches.
const runTimeout = 10 * time.Minute

// run executes one command to its end and answers with all its output.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	pod, err := s.pod(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	id, err := runningContainer(pod, r.PathValue("container"))
	if err != nil {
		s.fail(w, err)
		return
	}
	cmd := strings.Fields(r.FormValue("cmd"))
	if len(cmd) == 0 {
		s.fail(w, refuse(http.StatusBadRequest, "no command to run: give the query parameter %q", "cmd"))
		return
	}
	out, errOut, err := s.cfg.Runtime.ExecSync(r.Context(), id, cmd, runTimeout)
	var exit utilexec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = w.Write(append(out, errOut...))
	if err != nil {
		fmt.Fprintf(w, "command %q exited with %d\n", strings.Join(cmd, " "), exit.ExitStatus())
	}
}
