//! Orders as Shopify posts them: invented, with the documented fields, 1 to 8 KB, and the same for the same seed.
//!
//! Source of the fields: Shopify's REST Admin API reference, "The Order object"; webhooks carry the same object.

use rand::RngExt as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

/// What one order sets off, one webhook each. All of them carry the order.
pub(super) const TOPICS: [&str; 5] =
    ["orders/create", "orders/paid", "orders/updated", "orders/partially_fulfilled", "orders/fulfilled"];

const GIVEN: [&str; 10] = ["Ada", "Bo", "Chidi", "Daria", "Emre", "Freya", "Goran", "Hana", "Ines", "Jonas"];
const FAMILY: [&str; 10] =
    ["Achterberg", "Brandt", "Castro", "Diallo", "Eriksen", "Fontaine", "Gupta", "Horvat", "Ito", "Jansen"];
const STREETS: [&str; 6] = ["Mill Lane", "Harbour Street", "Station Road", "Old Market", "Church Walk", "Park Avenue"];
const CITIES: [(&str, &str, &str, &str); 5] = [
    ("Leeds", "England", "United Kingdom", "GB"),
    ("Rotterdam", "Zuid-Holland", "Netherlands", "NL"),
    ("Portland", "Oregon", "United States", "US"),
    ("Toulouse", "Occitanie", "France", "FR"),
    ("Hamilton", "Ontario", "Canada", "CA"),
];
const GOODS: [(&str, u64); 8] = [
    ("Linen apron", 3_400),
    ("Oak cutting board", 5_250),
    ("Stoneware mug, set of four", 4_800),
    ("Wool blanket", 11_900),
    ("Beeswax candle", 1_450),
    ("Cast iron pan, 26 cm", 6_900),
    ("Tea towel", 1_200),
    ("Enamel teapot", 3_950),
];
const COLOURS: [&str; 5] = ["Moss", "Slate", "Chalk", "Rust", "Midnight"];

/// The body of an order of `shop`'s, the `number`-th that it took.
pub(super) fn body(random: &mut SmallRng, shop: &str, number: u64) -> Vec<u8> {
    order(random, shop, number).to_string().into_bytes()
}

fn order(random: &mut SmallRng, shop: &str, number: u64) -> Value {
    let name = person(random);
    let email = format!("{}.{}@example.com", name.0.to_lowercase(), name.1.to_lowercase());
    let at = time(random);
    let address = address(random, name);
    let items: Vec<Item> = (0..random.random_range(1..=6)).map(|_| Item::any(random)).collect();
    let lines: Vec<Value> = items.iter().map(|item| item.line(random)).collect();
    let mut order = head(random, shop, number, &email, &at);
    let rest = json!({
        "billing_address": address,
        "shipping_address": address,
        "customer": customer(random, name, &email, &at, &address),
        "line_items": lines,
        "fulfillments": [],
        "refunds": [],
    });
    for part in [sums(random, &items), rest] {
        if let (Value::Object(order), Value::Object(part)) = (&mut order, part) {
            order.extend(part);
        }
    }
    order
}

/// Which order it is, and whose.
fn head(random: &mut SmallRng, shop: &str, number: u64, email: &str, at: &str) -> Value {
    let id = identity(random);
    json!({
        "id": id,
        "admin_graphql_api_id": format!("gid://shopify/Order/{id}"),
        "app_id": 580_111,
        "browser_ip": format!("192.0.2.{}", random.random_range(1..255)),
        "buyer_accepts_marketing": random.random_bool(0.4),
        "cancel_reason": null,
        "cancelled_at": null,
        "cart_token": format!("{:032x}", random.random::<u128>()),
        "confirmed": true,
        "contact_email": email,
        "created_at": at,
        "customer_locale": "en",
        "email": email,
        "financial_status": "paid",
        "fulfillment_status": null,
        "landing_site": "/collections/all",
        "name": format!("#{}", 1_000 + number),
        "note": null,
        "note_attributes": [],
        "number": number,
        "order_number": 1_000 + number,
        "order_status_url": format!("https://{shop}.myshopify.com/orders/{:032x}", random.random::<u128>()),
        "payment_gateway_names": ["shopify_payments"],
        "processed_at": at,
        "source_name": "web",
        "tags": "",
        "test": false,
        "updated_at": at,
    })
}

/// What it costs.
fn sums(random: &mut SmallRng, items: &[Item]) -> Value {
    let goods: u64 = items.iter().map(|item| item.cents * item.count).sum();
    let shipping = if goods > 10_000 { 0 } else { 695 };
    // A sixth of a price is the tax in it, at 20 %.
    let (total, tax) = (goods + shipping, goods / 6);
    json!({
        "currency": "EUR",
        "presentment_currency": "EUR",
        "current_subtotal_price": price(goods),
        "current_total_discounts": "0.00",
        "current_total_price": price(total),
        "current_total_price_set": money(total),
        "current_total_tax": price(tax),
        "discount_codes": [],
        "subtotal_price": price(goods),
        "taxes_included": true,
        "total_discounts": "0.00",
        "total_line_items_price": price(goods),
        "total_outstanding": "0.00",
        "total_price": price(total),
        "total_shipping_price_set": money(shipping),
        "total_tax": price(tax),
        "total_weight": items.iter().map(|item| 350 * item.count).sum::<u64>(),
        "shipping_lines": [{
            "id": identity(random),
            "code": "Standard",
            "price": price(shipping),
            "price_set": money(shipping),
            "source": "shopify",
            "title": "Standard, 2 to 4 days",
            "tax_lines": [],
        }],
    })
}

struct Item {
    title: &'static str,
    colour: &'static str,
    cents: u64,
    count: u64,
}

impl Item {
    fn any(random: &mut SmallRng) -> Self {
        let (title, cents) = pick(random, &GOODS);
        Self { title, cents, colour: pick(random, &COLOURS), count: random.random_range(1..=3) }
    }

    fn line(&self, random: &mut SmallRng) -> Value {
        let id = identity(random);
        let sku = format!("{}-{}", self.title.chars().take(3).collect::<String>().to_uppercase(), self.cents);
        json!({
            "id": id,
            "admin_graphql_api_id": format!("gid://shopify/LineItem/{id}"),
            "current_quantity": self.count,
            "fulfillable_quantity": self.count,
            "fulfillment_service": "manual",
            "fulfillment_status": null,
            "gift_card": false,
            "grams": 350,
            "name": format!("{} - {}", self.title, self.colour),
            "price": price(self.cents),
            "price_set": money(self.cents),
            "product_exists": true,
            "product_id": identity(random),
            "properties": [],
            "quantity": self.count,
            "requires_shipping": true,
            "sku": sku,
            "taxable": true,
            "title": self.title,
            "total_discount": "0.00",
            "variant_id": identity(random),
            "variant_title": self.colour,
            "vendor": "House goods",
            "tax_lines": [],
            "discount_allocations": [],
        })
    }
}

fn customer(random: &mut SmallRng, name: (&str, &str), email: &str, at: &str, address: &Value) -> Value {
    let id = identity(random);
    json!({
        "id": id,
        "admin_graphql_api_id": format!("gid://shopify/Customer/{id}"),
        "created_at": at,
        "updated_at": at,
        "currency": "EUR",
        "default_address": address,
        "email": email,
        "first_name": name.0,
        "last_name": name.1,
        "note": null,
        "phone": null,
        "state": "disabled",
        "tags": "",
        "tax_exempt": false,
        "verified_email": true,
    })
}

fn address(random: &mut SmallRng, name: (&str, &str)) -> Value {
    let (city, province, country, code) = pick(random, &CITIES);
    let street = pick(random, &STREETS);
    json!({
        "first_name": name.0,
        "last_name": name.1,
        "name": format!("{} {}", name.0, name.1),
        "address1": format!("{} {street}", random.random_range(1..200)),
        "address2": null,
        "city": city,
        "company": null,
        "country": country,
        "country_code": code,
        "phone": null,
        "province": province,
        "zip": format!("{:05}", random.random_range(10_000..99_999)),
    })
}

fn person(random: &mut SmallRng) -> (&'static str, &'static str) {
    (pick(random, &GIVEN), pick(random, &FAMILY))
}

fn pick<T: Copy>(random: &mut SmallRng, from: &[T]) -> T {
    *from.get(random.random_range(0..from.len())).expect("the number is below the length")
}

/// As long as Shopify's.
fn identity(random: &mut SmallRng) -> u64 {
    random.random_range(5_000_000_000_000..6_000_000_000_000)
}

/// Some second of one busy day.
fn time(random: &mut SmallRng) -> String {
    let (hour, minute, second) = (random.random_range(0..24), random.random_range(0..60), random.random_range(0..60));
    format!("2026-11-27T{hour:02}:{minute:02}:{second:02}+00:00")
}

fn price(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

fn money(cents: u64) -> Value {
    let one = json!({ "amount": price(cents), "currency_code": "EUR" });
    json!({ "shop_money": one, "presentment_money": one })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn orders_differ_are_the_same_for_the_same_seed_and_have_the_sizes_of_real_ones() {
        let make = |seed| {
            let mut random = SmallRng::seed_from_u64(seed);
            (0..300).map(|number| body(&mut random, "fern", number)).collect::<Vec<_>>()
        };
        let orders = make(1);
        assert_eq!(orders, make(1));
        assert_ne!(orders, make(2));
        let sizes: Vec<usize> = orders.iter().map(Vec::len).collect();
        assert!(sizes.iter().all(|size| (1 << 10..8 << 10).contains(size)), "{sizes:?}");
        assert!(sizes.iter().max().unwrap() > &(2 * sizes.iter().min().unwrap()), "{sizes:?}");
    }

    #[test]
    fn the_sums_of_an_order_are_right() {
        let mut random = SmallRng::seed_from_u64(7);
        for number in 0..50 {
            let order: Value = serde_json::from_slice(&body(&mut random, "fern", number)).unwrap();
            let cents = |value: &Value| value.as_str().unwrap().replace('.', "").parse::<u64>().unwrap();
            let lines = order["line_items"].as_array().unwrap();
            let goods: u64 = lines.iter().map(|l| cents(&l["price"]) * l["quantity"].as_u64().unwrap()).sum();
            let shipping = cents(&order["shipping_lines"][0]["price"]);
            assert_eq!(cents(&order["total_price"]), goods + shipping);
        }
    }
}
