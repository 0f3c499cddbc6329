package guard

import (
	"net/netip"
	"testing"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	g := guard{allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}}
	for addr, want := range map[string]bool{
		"127.0.0.1": false, "127.0.0.2": true, "10.0.0.1": false, "10.1.2.3": true, "172.16.0.1": false, "172.32.0.1": true, "192.168.1.1": false,
		"169.254.169.254": false, "100.64.0.1": false, "0.0.0.0": false, "0.1.2.3": false, "224.0.0.1": false, "255.255.255.255": false, "198.18.0.1": false,
		"8.8.8.8": true, "140.82.121.4": true, "::1": false, "::": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd00:1::1": true, "fd00:2::1": false, "ff02::1": false,
		"2606:50c0:8000::153": true, "::ffff:127.0.0.1": false, "::ffff:127.0.0.2": true, "::ffff:8.8.8.8": true,
		"64:ff9b::7f00:1": false, "64:ff9b::808:808": true, "2002:7f00:1::": false, "2002:a00:1::": false, "2001:0:1::1": false, "::7f00:1": false,
	} {
		err := g.check(netip.AddrPortFrom(netip.MustParseAddr(addr), 443).String())
		if (err == nil) != want {
			t.Errorf("SEC-A6 %s: %v, want allowed %v", addr, err, want)
		}
	}
	if err := g.check("nonsense"); err == nil {
		t.Error("an address that is none is allowed")
	}
}
