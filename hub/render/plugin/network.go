package plugin

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxConnections is how many connections a program may have at once.
const maxConnections = 64

// A network is all that a program with hosts can reach: a proxy of the hub,
// which connects to these hosts and refuses the others. The program can make no
// socket itself. The kernel asks the hub for each, and the hub answers with one
// that is connected to the proxy already.
type network struct {
	hosts    []string
	dialer   *net.Dialer
	listener *net.TCPListener
	server   *http.Server
	forward  *http.Transport
	open     chan struct{}   // a token for each tunnel
	ctx      context.Context //nolint:containedctx // of the run; tunnels end with it
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu    sync.Mutex
	ports map[int]bool // of sockets that were given to the program
}

func newNetwork(hosts []string, allowed []netip.Prefix) (*network, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fault.Wrap(fault.Offline, err, "the hub has no network for a plugin at the moment")
	}
	ctx, stop := context.WithCancel(context.Background())
	n := &network{
		hosts: hosts, dialer: guard.Dialer(allowed), listener: l, open: make(chan struct{}, maxConnections),
		ctx: ctx, stop: stop, ports: map[int]bool{},
	}
	n.forward = &http.Transport{DialContext: n.dialer.DialContext, DisableKeepAlives: true, ResponseHeaderTimeout: time.Minute}
	n.server = &http.Server{Handler: n, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	n.running.Go(func() { _ = n.server.Serve(&own{l, n}) }) // it ends with close
	return n, nil
}

// close ends all connections and waits for everything that serves them.
func (n *network) close() {
	n.stop()
	_ = n.server.Close()
	n.running.Wait()
	n.forward.CloseIdleConnections()
}

// env tells programs about the proxy. The address does not matter: each socket
// is connected to it already.
func (n *network) env() []string {
	const proxy = "http://127.0.0.1:3128"
	var out []string
	for _, name := range [...]string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		out = append(out, name+"="+proxy)
	}
	return append(out, "NO_PROXY=", "no_proxy=")
}

// own accepts the connections of this program and closes others of the machine.
type own struct {
	*net.TCPListener
	n *network
}

// Accept waits for a connection of the program.
func (o *own) Accept() (net.Conn, error) {
	for {
		c, err := o.TCPListener.Accept()
		if err != nil {
			return nil, err
		}
		if at, ok := c.RemoteAddr().(*net.TCPAddr); ok && o.n.gave(at.Port) {
			return c, nil
		}
		_ = c.Close()
	}
}

func (n *network) gave(port int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.ports[port]
	delete(n.ports, port)
	return was
}

// permits reports whether the program may reach a host.
func (n *network) permits(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return slices.ContainsFunc(n.hosts, func(pattern string) bool {
		want, onlyPort, ok := strings.Cut(strings.ToLower(pattern), ":")
		if ok && port != onlyPort || !ok && port != "443" && port != "80" {
			return false
		}
		if suffix, any := strings.CutPrefix(want, "*."); any {
			return strings.HasSuffix(host, "."+suffix)
		}
		return host == want
	})
}

// ServeHTTP answers as an HTTP proxy does.
func (n *network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address := r.Host
	if r.Method != http.MethodConnect {
		address = r.URL.Host
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(address, "80")
	}
	if !n.permits(address) {
		http.Error(w, "the plugin may not reach "+strconv.Quote(address)+": the operator has not named this host", http.StatusForbidden)
		return
	}
	select {
	case n.open <- struct{}{}:
		defer func() { <-n.open }()
	default:
		http.Error(w, "too many connections", http.StatusServiceUnavailable)
		return
	}
	if r.Method == http.MethodConnect {
		n.tunnel(w, r, address)
		return
	}
	n.pass(w, r)
}

// pass forwards one request that is not encrypted.
func (n *network) pass(w http.ResponseWriter, r *http.Request) {
	out := r.Clone(n.ctx)
	out.RequestURI = ""
	for _, name := range [...]string{"Proxy-Connection", "Proxy-Authorization", "Connection"} {
		out.Header.Del(name)
	}
	res, err := n.forward.RoundTrip(out)
	if err != nil {
		http.Error(w, "the host cannot be reached", http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body) // the program notices what is missing
}

// tunnel carries bytes between the program and a host.
func (n *network) tunnel(w http.ResponseWriter, r *http.Request, address string) {
	far, err := n.dialer.DialContext(r.Context(), "tcp", address)
	if err != nil {
		http.Error(w, "the host cannot be reached", http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, rest, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	defer context.AfterFunc(n.ctx, func() { _, _ = near.Close(), far.Close() })()
	if _, err := near.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(far, rest) // what was read with the request comes first
		_ = far.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(near, far)
	_ = near.Close()
	up.Wait()
}

// give makes a socket for a program. The type was checked by the filter.
func (n *network) give(fd int, asked notification) error {
	socket, err := n.connected()
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	kind := asked.args[1]
	if kind&unix.SOCK_NONBLOCK != 0 {
		if err := unix.SetNonblock(socket, true); err != nil {
			return err
		}
	}
	add := addFile{id: asked.id, flags: unix.SECCOMP_ADDFD_FLAG_SEND, source: uint32(socket)}
	if kind&unix.SOCK_CLOEXEC != 0 {
		add.newFlags = unix.O_CLOEXEC
	}
	return ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&add))
}

// connected returns a socket that is connected to the proxy.
func (n *network) connected() (int, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	loopback := [4]byte{127, 0, 0, 1}
	err = unix.Bind(socket, &unix.SockaddrInet4{Addr: loopback})
	var at unix.Sockaddr
	if err == nil {
		at, err = unix.Getsockname(socket)
	}
	if here, ok := at.(*unix.SockaddrInet4); ok && err == nil {
		n.mu.Lock()
		n.ports[here.Port] = true
		n.mu.Unlock()
		err = unix.Connect(socket, &unix.SockaddrInet4{Addr: loopback, Port: n.listener.Addr().(*net.TCPAddr).Port})
	}
	if err != nil {
		_ = unix.Close(socket)
		return 0, err
	}
	return socket, nil
}
